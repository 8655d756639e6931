"""Modules are nouns, functions are verbs or noun phrases, and no class name is used twice."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import trees

PARTICIPLE = re.compile(
    r"\w+[^e]ed|told|begun|shown|kept|sent|held|found|made|given|taken|known|said|written|heard|seen"
    r"|lost|left|done|gone|built|bound|chosen|\w+ing"
)
NO_PARTICIPLES = {"string", "nothing", "ping", "mapping", "thinking", "unfinished", "pending"}
# Public, and read well at their call: `async with app.running()`, `MockTool.returning(4)`,
# `Provider.named("openai")`.
# `Approval.denied("no")`, `AgentStep.failed(error)`.
PUBLIC = {"denied", "edited", "failed", "granted", "named", "raising", "returning", "running"}
NOUNS = {"broadcasting", "pending", "testing", "tool_calling"}
"""Modules whose names end like gerunds and are the field's nouns."""


def functions_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [getattr(each, "id", "") for each in node.decorator_list]
            if "property" not in decorators:
                yield node.name


def is_lone_participle(name: str) -> bool:
    if "_" in name or name in NO_PARTICIPLES | PUBLIC:
        return False
    return bool(PARTICIPLE.fullmatch(name))


def test_a_module_is_a_noun() -> None:
    stems = {file: Path(file).stem for file in trees()}
    assert [f for f, stem in stems.items() if stem.endswith("ing") and stem not in NOUNS] == []


def test_no_function_is_named_by_a_lone_participle() -> None:
    lone = [
        f"{file}: {name}"
        for file, tree in trees().items()
        for name in functions_of(tree)
        if is_lone_participle(name.strip("_"))
    ]

    assert lone == []


def test_no_class_shares_its_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(file)

    assert {name: files for name, files in places.items() if len(files) > 1} == {}
