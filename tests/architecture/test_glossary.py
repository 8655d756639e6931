"""No name, docstring, message or docs page has a word that GLOSSARY.md says in bold to avoid."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import SOURCE, trees

ROOT = SOURCE.parents[1]
GLOSSARY = ROOT / "GLOSSARY.md"
# Places where an avoided word is right, with the reason.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "testing/stores_snapshots.py": {"told": "the stored key of a metadata field"},
    "sessions/records.py": {"told": "the stored key of a metadata field"},
    "sessions/requests/resume.py": {"wish": "the stored key of a metadata field"},
    "docs/howto/agent-files.md": {"told": "part of an example prompt"},
    "docs/reference/settings.md": {"told": "explains the value `tell`"},
}
# Decision records keep their history; the changelog quotes old names.
DOCS = [
    path
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "llms.txt"])
    if "decisions" not in path.parts and path.name not in {"GLOSSARY.md", "CHANGELOG.md"}
]


def avoided_words() -> list[str]:
    """Return the bold words of the avoid column."""
    rows = [line.split("|") for line in GLOSSARY.read_text("utf-8").splitlines()]
    cells = [row[3] for row in rows if len(row) == 5]
    return sorted({word for cell in cells for word in re.findall(r"\*\*([\w ]+)\*\*", cell)})


AVOIDED = re.compile(
    rf"(?<![a-z])({'|'.join(avoided_words())})(?:s|es|ed|ing)?(?![a-z])", re.IGNORECASE
)


def words_in(text: str) -> Iterator[str]:
    """Yield avoided words, also as parts of snake_case and CamelCase names."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")
    yield from (match[0].lower() for match in AVOIDED.finditer(spaced))


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every name and every string of a module, docstrings included."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name():
                yield node.lineno, node.id
            case ast.Attribute():
                yield node.lineno, node.attr
            case ast.Constant(value=str() as text):
                yield node.lineno, text
            case _:
                pass


def found_in_source() -> Iterator[tuple[str, int, str]]:
    for file, tree in trees().items():
        texts = [(1, Path(file).stem), *texts_of(tree)]
        for line, text in texts:
            yield from ((file, line, word) for word in words_in(text))


def found_in_docs() -> Iterator[tuple[str, int, str]]:
    for path in DOCS:
        file = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            yield from ((file, number, word) for word in words_in(line))


def is_excepted(file: str, word: str) -> bool:
    return word in EXCEPTIONS.get(file, {})


def test_the_glossary_has_words_to_check() -> None:
    assert "told" in avoided_words()
    assert list(words_in("was_told, ToldTwice, toldx")) == ["told", "told"]


def test_the_source_avoids_them() -> None:
    assert [found for found in found_in_source() if not is_excepted(found[0], found[2])] == []


def test_the_docs_avoid_them() -> None:
    assert [found for found in found_in_docs() if not is_excepted(found[0], found[2])] == []


def test_every_exception_is_needed() -> None:
    found = {(file, word) for file, _, word in (*found_in_source(), *found_in_docs())}
    listed = {(file, word) for file, words in EXCEPTIONS.items() for word in words}

    assert listed - found == set()
