"""Sizes, broad catching and docstring examples, read from the source."""

import ast
import doctest
import importlib
from pathlib import Path

from tests.architecture.source import texts, trees

# One test per rule, not one per file: thousands of cases cost time, and a test lists what it finds.
LONGEST_FILE = 450
LONGEST_FUNCTION = 70
MAY_CATCH_ALL = {
    "app/app_loader.py": "an import runs foreign code; what it raises is told with its own frames",
    "broadcasting/delivery/calling_thread.py": "a broadcaster is foreign code",
    "capabilities/approvals.py": "an approval rule that raises means that a person is asked",
    "capabilities/telemetry/telemetry_hooks.py": "errors of an exporter are logged",
    "errors.py": "an exception's own __str__ is foreign code",
    "events/emitter.py": "a listener is foreign code",
    "foreign.py": "what foreign code raises becomes an ordinary error",
    "hooks/stack.py": "names the hook that raised",
    "loop/loop.py": "the faults of a step end up in the state",
    "loop/votes.py": "a criterion that raises ends the run, not the program",
    "tools/executor.py": "whatever a tool raises is a result",
    "tools/preparation.py": "a validator is the tool's code as well",
    "tools/results.py": "a value of a hook that can't be shown is a failed result",
    "sessions/run_contexts.py": "the deps of a run are closed by foreign code",
    "loop/deadline.py": "the first checkpoint names the limit that raised",
    "tools/threads.py": "raised again in the awaiting task",
    "worker/work.py": "whatever breaks an execution ends that execution, not the worker",
    "worker/heartbeat.py": "a heartbeat that breaks ends its own execution only",
}


def modules_with_examples() -> list[str]:
    paths = [Path(file).with_suffix("") for file, text in texts().items() if ">>>" in text]
    parts = [path.parts[:-1] if path.name == "__init__" else path.parts for path in paths]
    return [".".join(("stepwell", *names)) for names in parts]


def catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {node.id for node in caught if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def test_the_source_was_found() -> None:
    assert len(texts()) > 50
    assert "tools/executor.py" in texts()


def test_no_file_is_too_long() -> None:
    lengths = {file: len(text.splitlines()) for file, text in texts().items()}

    assert {file: length for file, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_too_long() -> None:
    too_long = [
        f"{file}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]

    assert too_long == []


def test_broad_catching_happens_only_where_it_is_allowed() -> None:
    catching = {
        file
        for file, tree in trees().items()
        if any(isinstance(n, ast.ExceptHandler) and catches_all(n) for n in ast.walk(tree))
    }

    assert catching == set(MAY_CATCH_ALL)


def test_every_module_says_what_it_owns() -> None:
    assert [file for file, tree in trees().items() if not ast.get_docstring(tree)] == []


def test_the_examples_in_docstrings_are_true() -> None:
    results = {
        module: doctest.testmod(importlib.import_module(module), raise_on_error=False)
        for module in modules_with_examples()
    }

    assert [module for module, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) > 20
