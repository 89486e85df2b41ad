from hf_gpt.__main__ import run

if __name__ == "__main__":
    run("push_to_hub")
