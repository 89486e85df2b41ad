"""`python scripts/evaluate_task.py --help`; the command itself is hf_gpt/commands/evaluate_task.py."""

# Not named evaluate.py: scripts find each other before libraries, and the metrics come from one of that name.
from quick_start import quick_start

quick_start(__name__)

from hf_gpt.commands.evaluate_task import main

if __name__ == "__main__":
    main()
