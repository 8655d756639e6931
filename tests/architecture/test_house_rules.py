"""Sizes, broad catching and docstring examples, read from the source."""

import ast
import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepwell

SOURCE = Path(stepwell.__file__).parent
FILES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
MODULES = [m.name for m in pkgutil.walk_packages(stepwell.__path__, "stepwell.")]

LONGEST_FILE = 450
LONGEST_FUNCTION = 70
MAY_CATCH_ALL = {
    "app/loading.py": "an import runs foreign code; what it raises is told with its own frames",
    "broadcasting/delivery/calling_thread.py": "a broadcaster is foreign code",
    "capabilities/approvals.py": "an approval rule that raises means that a person is asked",
    "capabilities/telemetry/watching.py": "what an exporter raises is logged, the run goes on",
    "errors.py": "an exception's own __str__ is foreign code",
    "events/emitter.py": "a listener is foreign code",
    "foreign.py": "what foreign code raises becomes an ordinary error",
    "hooks/stack.py": "names the hook that raised",
    "loop/loop.py": "the faults of a step end up in the state",
    "loop/votes.py": "a criterion that raises ends the run, not the program",
    "tools/executor.py": "whatever a tool raises is a result",
    "tools/threads.py": "raised again in the awaiting task",
    "worker/work.py": "whatever breaks an execution ends that execution, not the worker",
    "worker/heartbeat.py": "a heartbeat that breaks ends its own execution only",
}


def nodes_of(file: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(FILES[file].read_text(encoding="utf-8")))


def catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {node.id for node in caught if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def test_the_source_was_found() -> None:
    assert len(FILES) > 50
    assert "tools/executor.py" in FILES


@pytest.mark.parametrize("file", FILES)
def test_no_file_is_too_long(file: str) -> None:
    assert len(FILES[file].read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("file", FILES)
def test_no_function_is_too_long(file: str) -> None:
    too_long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]

    assert too_long == []


def test_broad_catching_happens_only_where_it_is_allowed() -> None:
    catching = {
        file
        for file in FILES
        if any(isinstance(n, ast.ExceptHandler) and catches_all(n) for n in nodes_of(file))
    }

    assert catching == set(MAY_CATCH_ALL)


@pytest.mark.parametrize("file", FILES)
def test_every_module_says_what_it_owns(file: str) -> None:
    docstring = ast.get_docstring(ast.parse(FILES[file].read_text(encoding="utf-8")))

    assert docstring


@pytest.mark.parametrize("module", ["stepwell", *MODULES])
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), raise_on_error=False)

    assert results.failed == 0


def test_there_are_examples_in_docstrings() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        test.name
        for module in MODULES
        for test in finder.find(importlib.import_module(module))
        if test.examples
    ]

    assert len(examples) > 20
