"""The order of the subpackages (README, map): data flow down through them, and so does what imports what."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "hf_gpt"
# Each subpackage imports from itself and from those before it. Nobody imports the others.
ORDER = ["files", "model", "trees", "tasks", "hub", "adapters", "conversion", "cards", "performance", "loading"]
ORDER += ["training", "features", "evaluation", "generation", "analysis", "demo", "commands"]
# Imports of hf_gpt's own modules inside functions: where they keep the start fast. Libraries may stand there, too.
LATE_IMPORTS: dict[tuple[str, str], str] = {
    ("loading", "adapters"): "peft is imported for adapters alone",
    ("conversion.sources", "adapters"): "the same",
    ("commands.push_to_hub", "adapters"): "the same",
    ("commands", "files"): "the list of commands, and a mistyped one, are answered without numpy and torch",
}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name not in ("__main__.py", "registration.py") and path != PACKAGE / "__init__.py"
}


def imports_of(module: str) -> Iterator[tuple[str, ast.AST, bool]]:
    """Modules of hf_gpt that a module imports: name, syntax node, and whether the import stands in a function."""
    path = MODULES[module]
    package = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {node for function in functions for node in ast.walk(function)}
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((name, node, node in inside) for name in names if name.split(".")[0] == "hf_gpt")
        elif isinstance(node, ast.ImportFrom):
            origin, _, dotted = resolve_name("." * node.level + (node.module or ""), package).partition(".")
            for alias in node.names if origin == "hf_gpt" else ():
                deeper = f"{dotted}.{alias.name}".strip(".")
                yield (deeper if deeper in MODULES else dotted), node, node in inside


def subpackage(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_up_the_list(module):
    allowed = ORDER[: ORDER.index(subpackage(module)) + 1]
    for target, node, _ in imports_of(module):
        assert subpackage(target) in allowed, f"{MODULES[module]}:{node.lineno} imports {target}"


@pytest.mark.parametrize("module", [module for module in MODULES if subpackage(module) == "model"])
def test_uploaded_files_import_siblings_only(module):
    """They are copied side by side into published repositories, where there is nothing else of hf_gpt."""
    for target, node, _ in imports_of(module):
        is_sibling = isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and "." not in node.module
        assert is_sibling, f"{MODULES[module]}:{node.lineno} imports {target}"


def test_no_circles():
    TopologicalSorter({module: {target for target, *_ in imports_of(module)} for module in MODULES}).prepare()


def test_imports_in_functions_have_a_reason():
    late = {(module, target) for module in MODULES for target, _, is_late in imports_of(module) if is_late}
    assert late == LATE_IMPORTS.keys()
