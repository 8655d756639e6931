"""The files of the page as they are shipped: small, from nowhere else, and without ways to make
markup of text."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.integration.server.serving import PAGE

MOST_VENDOR_BYTES = 100_000
NAMESPACES = {
    # Names, not addresses: nobody fetches them.
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1998/Math/MathML",
}
WORDS_OF_VENDORS = {
    # In the text of an error of marked.
    "https://github.com/markedjs/marked.",
}
LICENCES = (".txt", ".md")
WITH_HOST = re.compile(r"""https?://[A-Za-z0-9][^\s"'`<>)\\]*""")
WITHOUT_SCHEME = re.compile(r"""["'`(]//[A-Za-z0-9]""")
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LINE_COMMENT = re.compile(r"(^|\s)//.*$", re.MULTILINE)
FIRST_COMMENT = re.compile(r"\A\s*/\*.*?\*/", re.DOTALL)
HTML_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
MARKUP_OF_TEXT = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|setHTMLUnsafe|srcdoc"
    r"|createContextualFragment|DOMParser)\b|document\.write|\beval\(|new Function\("
)


def files_of_page() -> Iterator[Path]:
    for file in sorted(PAGE.rglob("*")):
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts:
            yield file


def is_vendors(file: Path) -> bool:
    return "vendor" in file.relative_to(PAGE).parts


def without_comments(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if is_vendors(file):
        # What is minified has one comment, and strings that look like more.
        return FIRST_COMMENT.sub("", text)
    if file.suffix == ".js":
        return LINE_COMMENT.sub(r"\1", BLOCK_COMMENT.sub("", text))
    return (BLOCK_COMMENT if file.suffix == ".css" else HTML_COMMENT).sub("", text)


def addresses_in(file: Path) -> list[str]:
    text = without_comments(file)
    found = set(WITH_HOST.findall(text)) | set(WITHOUT_SCHEME.findall(text))
    return sorted(found - NAMESPACES - (WORDS_OF_VENDORS if is_vendors(file) else set()))


def test_what_others_wrote_stays_small() -> None:
    vendors = [file for file in files_of_page() if is_vendors(file)]
    assert len(vendors) > 3
    assert sum(file.stat().st_size for file in vendors) < MOST_VENDOR_BYTES


def test_no_file_names_an_address_elsewhere() -> None:
    looked_at = [file for file in files_of_page() if file.suffix not in LICENCES]
    found = {str(file.relative_to(PAGE)): addresses_in(file) for file in looked_at}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
    assert len(looked_at) > 5


def test_an_address_is_found_where_it_is_no_comment() -> None:
    """The search itself: it must be able to fail."""
    for line in (
        'fetch("https://a.example/x")',
        "import `//a.example/x.js`",
        "x('http://1.2.3.4')",
    ):
        assert WITH_HOST.search(line) or WITHOUT_SCHEME.search(line), line
    comment = '// see https://a.example\n/* http://b.example */ const x = "http://";'
    assert not WITH_HOST.search(LINE_COMMENT.sub(r"\1", BLOCK_COMMENT.sub("", comment)))


def test_no_file_of_ours_makes_markup_of_text() -> None:
    ours = [file for file in files_of_page() if file.suffix == ".js" and not is_vendors(file)]
    found = {
        str(file.relative_to(PAGE)): sorted({it.group() for it in MARKUP_OF_TEXT.finditer(text)})
        for file in ours
        if (text := without_comments(file))
    }
    assert {name: words for name, words in found.items() if words} == {}


def test_every_kind_of_file_in_the_folder_is_one_that_is_served() -> None:
    kinds = {file.suffix for file in files_of_page()}
    assert kinds <= {".html", ".css", ".js", ".svg", ".txt", ".md", ".webmanifest"}
