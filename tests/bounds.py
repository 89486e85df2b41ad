"""
The lowest versions that pyproject.toml allows, one requirement a line, for `make test-lowest`.

torch stays as constraints.txt has it: its older wheels bring gigabytes of CUDA.
"""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def lowest() -> list[str]:
    """`name==version` of every dependency of the package."""
    pinned = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in pinned if line.startswith("torch==")]
    for each in map(Requirement, PROJECT["dependencies"]):
        (bound,) = [one.version for one in each.specifier if one.operator == ">="]
        if each.name != "torch":
            found.append(f"{each.name}=={bound}")
    return found


if __name__ == "__main__":
    print("\n".join(lowest()))
