"""Processes that cannot import hf_gpt, as those who load from the Hub have them."""

import subprocess
import sys
from pathlib import Path

# For a process that must not find some packages.
WITHOUT = """
import sys
class Missing:
    names = ["hf_gpt"]
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run_without_hf_gpt(code: str, folder: Path, **environment: str) -> str:
    """The last line that a fresh process prints which cannot import hf_gpt, in that folder."""
    environment |= {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    command = [sys.executable, "-c", WITHOUT + code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-5000:]
    return result.stdout.splitlines()[-1]
