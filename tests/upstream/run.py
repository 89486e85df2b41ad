"""
transformers' and peft's own tests on hf_gpt's classes.

    python tests/upstream/run.py [--project transformers] [--transformers_tests CLONE/tests] [arguments of pytest]

The source distributions of the installed versions come from PyPI, their tests are unpacked below `.upstream`, and
pytest prints what each suite passed, failed, skipped, and what stands in `exceptions.py`. The source distribution of
transformers lacks the tests of generation and export; those of a clone at the installed version's tag have them.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
UNPACKED = REPOSITORY / ".upstream"
SUITES = {"transformers": ["transformers_models.py", "transformers_tokenizer.py"], "peft": ["peft_models.py"]}


def prepare(project: str, tests: Path | None) -> Path:
    """
    The folder to run the project's suites in: its tests, of a clone or of the installed version's source distribution,
    and from `additions` what they need and lack.
    """
    folder = UNPACKED / f"{project}-{'clone' if tests else version(project)}"
    folder.mkdir(parents=True, exist_ok=True)
    if not tests and not (folder / "tests").exists():
        requirement = f"{project}=={version(project)}"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", project, "-d", folder]
        subprocess.run([*pip, requirement], check=True)  # the first run needs PyPI
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as sdist:
            sdist.extractall(folder, filter="data")
        (tests,) = folder.glob("*/tests")
    if tests:
        shutil.copytree(tests, folder / "tests", dirs_exist_ok=True)
    for addition in (HERE / "additions" / project).rglob("*.*"):
        target = folder / addition.relative_to(HERE / "additions" / project)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(addition, target)
    # The tests of pipelines import the library once more from where it stands in a clone.
    source = folder / "src" / project
    if not source.exists():
        source.parent.mkdir(exist_ok=True)
        source.symlink_to(importlib.util.find_spec(project).submodule_search_locations[0])
    return folder


def run_suites(project: str, folder: Path, arguments: list[str]) -> int:
    path = os.pathsep.join([str(HERE), str(REPOSITORY)])
    environment = os.environ | {"PYTHONPATH": path, "HF_HOME": str(UNPACKED / "cache")}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    suites = [str(HERE / suite) for suite in SUITES[project]]
    command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), *suites, *arguments]
    return subprocess.run(command, cwd=folder, env=environment).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", choices=SUITES, help="run the suites of one project only")
    parser.add_argument("--transformers_tests", type=Path, help="folder of transformers' tests in a clone")
    args, arguments = parser.parse_known_args()
    statuses = []
    for project in [args.project] if args.project else SUITES:
        folder = prepare(project, args.transformers_tests if project == "transformers" else None)
        statuses.append(run_suites(project, folder, arguments))
    sys.exit(max(statuses))


if __name__ == "__main__":
    main()
