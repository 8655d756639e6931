"""Names in the rooms of the server: modules are nouns, functions are verbs or noun phrases, and no
class name is used twice."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepwell

SOURCE = Path(stepwell.__file__).parent
ROOMS = ("journal", "loop", "replay", "server/live", "sessions", "stores", "worker")
FILES = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
PARTICIPLE = re.compile(
    r"\w+[^e]ed|told|begun|shown|kept|sent|held|found|made|given|taken|known|said|written|heard|seen"
    r"|lost|left|done|gone|built|bound|chosen|\w+ing"
)
NO_PARTICIPLES = {"string", "nothing", "ping", "mapping", "thinking", "unfinished", "pending"}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def functions_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [getattr(each, "id", "") for each in node.decorator_list]
            if "property" not in decorators:
                yield node.name


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_is_a_noun(path: Path) -> None:
    assert not path.stem.endswith("ing")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_function_is_named_by_a_lone_participle(path: Path) -> None:
    words = {name: name.strip("_") for name in functions_of(path)}
    lone = [
        name
        for name, word in words.items()
        if PARTICIPLE.fullmatch(word) and "_" not in word and word not in NO_PARTICIPLES
    ]

    assert lone == []


def test_no_class_of_these_rooms_shares_its_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    shared = {
        name: files
        for name, files in places.items()
        if len(files) > 1 and any(file.startswith(ROOMS) for file in files)
    }

    assert shared == {}
