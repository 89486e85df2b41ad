# Not named evaluate.py: scripts find each other before libraries, and the metrics come from one of that name.
from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("evaluate_task")
