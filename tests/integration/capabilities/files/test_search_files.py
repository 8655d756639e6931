"""Searching real trees: patterns, hidden and skipped directories, text in files, bounded work."""

import os
from pathlib import Path
from time import thread_time

import pytest

from stepwell.capabilities.files import FilePolicy, SearchFilesTool
from stepwell.tools import ToolFailure
from tests.integration.capabilities.files.cancelled_call import cancelled

FILES = (
    "main.py",
    "README.md",
    ".env",
    "src/app.py",
    "src/app.test.ts",
    "src/ui/page.tsx",
    "src/ui/deep/er/index.ts",
    "src/ui/[id]/route.ts",
    "lib/src/other.ts",
    "tests/test_app.py",
    ".github/workflows/ci.yml",
    ".git/hooks/pre-commit.py",
    "node_modules/left-pad/index.ts",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"first line of {file}\nsecond line\n")
    return tmp_path


@pytest.fixture
def search(tree: Path) -> SearchFilesTool:
    return SearchFilesTool.in_directory(tree)


def hits(answer: str | ToolFailure) -> set[str]:
    assert isinstance(answer, str)
    return set(answer.splitlines())


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", {"main.py"}),
        ("./main.py", {"main.py"}),
        ("{tree}/main.py", {"main.py"}),
        ("src/app.py", {"src/app.py"}),
        ("**/*.py", {"main.py", "src/app.py", "tests/test_app.py"}),
        ("./*.py", {"main.py"}),
        ("src/*.py", {"src/app.py"}),
        (
            "src/**/*.ts",
            {"src/app.test.ts", "src/ui/deep/er/index.ts", "src/ui/[id]/route.ts"},
        ),
        ("src/**/*.test.ts", {"src/app.test.ts"}),
        ("src/**/deep/**/*.ts", {"src/ui/deep/er/index.ts"}),
        ("**/er/*.ts", {"src/ui/deep/er/index.ts"}),
        (
            "{src,lib}/**/*.{ts,tsx}",
            {*(f for f in FILES if f.startswith(("src/", "lib/")))} - {"src/app.py"},
        ),
        ("*.{md,tsx}", {"README.md"}),
        ("src/ui/[id]/*.ts", {"src/ui/[id]/route.ts"}),
        ("**/[a-m]*.py", {"main.py", "src/app.py"}),
        ("src/ui/?age.tsx", {"src/ui/page.tsx"}),
        ("app", {"src/app.py", "src/app.test.ts", "tests/test_app.py"}),
        ("readme", {"README.md"}),
        ("{tree}/tests", {"tests/test_app.py"}),
        ("tests/**", {"tests/test_app.py"}),
        ("tests/", {"tests/test_app.py"}),
        (".env", {".env"}),
        ("*env", {".env"}),
        ("**/*.yml", {".github/workflows/ci.yml"}),
        ("node_modules/**/*.ts", {"node_modules/left-pad/index.ts"}),
        (".git/hooks/*", {".git/hooks/pre-commit.py"}),
        ("{tree}/src/*.py", {"src/app.py"}),
        ("*.rs", {"No files match '*.rs'."}),
        ("src", {*(f for f in FILES if "src/" in f)}),
    ],
)
def test_b264_patterns_find_what_they_say(
    pattern: str, found: set[str], search: SearchFilesTool, tree: Path
) -> None:
    """B264, B265: a directory before ``**`` counts, and so does all that comes after it."""
    assert hits(search(pattern.replace("{tree}", str(tree)))) == found


@pytest.mark.parametrize(
    ("pattern", "wider", "found"),
    [
        ("*.tsx", "**/*.tsx", "src/ui/page.tsx"),
        ("./app.py", "**/app.py*", "src/app.py"),
        ("ui/page", "**/ui/page*", "src/ui/page.tsx"),
        ("ui/deep/", "**/ui/deep/**", "src/ui/deep/er/index.ts"),
    ],
)
def test_a_pattern_that_matches_elsewhere_only_is_answered_with_the_wider_one(
    pattern: str, wider: str, found: str, search: SearchFilesTool
) -> None:
    hint = f"Globs and paths start at the base directory; '{wider}' finds {found}."

    assert search(pattern) == f"No files match '{pattern}'.\n{hint}"
    assert hint in str(search(pattern, contains="second"))
    assert found in str(search(wider))


def test_no_wider_pattern_is_named_where_files_matched_but_no_line(search: SearchFilesTool) -> None:
    answer = search("*.py", contains="first line of src")

    assert answer == "No lines contain 'first line of src' in '*.py'."


def test_the_model_is_told_where_patterns_start(search: SearchFilesTool) -> None:
    told = search.schema.parameters["properties"]["pattern"]["description"]

    assert "'*.py' finds files directly in it" in " ".join(told.split())


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "the pattern is empty"),
        ("/", "outside the base directory"),
        ("../*", "contains '..'"),
        ("src/../../*", "contains '..'"),
        ("{..,src}/*", "contains '..'"),
        ("/etc/*", "outside the base directory"),
        ("a\0b", "NUL byte"),
        ("x" * 501, "longer than 500"),
        ("{a,b}" * 7, "more than 64 alternatives"),
    ],
)
def test_b261_patterns_that_can_not_be_are_refused(
    pattern: str, why: str, search: SearchFilesTool
) -> None:
    answer = search(pattern)

    assert isinstance(answer, ToolFailure)
    assert why in answer.message


def test_b265_all_hits_up_to_the_limit_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"f{number:02}.txt").write_text("")
    ten = str(SearchFilesTool.in_directory(tmp_path)("*.txt")).splitlines()
    limited = SearchFilesTool.in_directory(tmp_path, policy=FilePolicy(max_results=24))("*.txt")
    exact = SearchFilesTool.in_directory(tmp_path, policy=FilePolicy(max_results=25))("*.txt")

    assert ten == [
        *(f"f{number:02}.txt" for number in range(10)),
        "... and 15 more; narrow the pattern to see them",
    ]
    assert str(limited).splitlines()[-2:] == [
        "f23.txt",
        "... and 1 more; narrow the pattern to see them",
    ]
    assert str(exact).splitlines() == [f"f{number:02}.txt" for number in range(25)]


def test_files_higher_up_come_first(tmp_path: Path) -> None:
    for file in ("a/b/c/x.py", "z/x.py", "x.py", "B.py", "a.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")

    assert str(SearchFilesTool.in_directory(tmp_path)("**/*.py")).splitlines() == [
        *("a.py", "B.py", "x.py", "z/x.py", "a/b/c/x.py"),
    ]


def test_b261_links_are_shown_but_not_gone_through(search: SearchFilesTool, tree: Path) -> None:
    (tree / "src" / "loop").symlink_to("..")
    (tree / "link.py").symlink_to("/etc/passwd")
    os.mkfifo(tree / "fifo.py")

    assert hits(search("**/*.py")) == {
        *("main.py", "src/app.py", "tests/test_app.py", "link.py", "fifo.py"),
    }
    assert hits(search("src/loop/*")) == {"No files match 'src/loop/*'."}
    assert hits(search("**/*.py", contains="root")) == {"No lines contain 'root' in '**/*.py'."}


def test_skipped_directories_are_a_setting(tree: Path) -> None:
    search = SearchFilesTool.in_directory(tree, policy=FilePolicy(skipped_directories=("src",)))

    assert ".git/hooks/pre-commit.py" in hits(search("**/*.py"))
    assert "src/app.py" not in hits(search("**/*.py"))


def test_work_on_huge_trees_is_bounded_and_said(tmp_path: Path) -> None:
    for directory in range(20):
        (tmp_path / f"d{directory:02}").mkdir()
        for number in range(20):
            (tmp_path / f"d{directory:02}" / f"{number}.txt").write_text("")
    at_most = FilePolicy(max_visited=100, max_results=1000)
    answer = str(SearchFilesTool.in_directory(tmp_path, policy=at_most)("**/*.txt")).splitlines()
    enough = FilePolicy(max_visited=420, max_results=1000)
    all_of_it = str(SearchFilesTool.in_directory(tmp_path, policy=enough)("**/*.txt")).splitlines()

    assert len(answer) == 81
    assert answer[-1] == (
        "(Stopped after 100 files and directories; narrow the pattern, for example to one "
        "directory.)"
    )
    assert len(all_of_it) == 400
    narrow = SearchFilesTool.in_directory(tmp_path, policy=at_most)("d19/*.txt")
    assert len(str(narrow).splitlines()) == 20


def test_lines_with_a_text_are_found(search: SearchFilesTool, tree: Path) -> None:
    (tree / "src" / "app.py").write_bytes(b"import os\r\n\tprint('needle')\r\nneedle again\r\n")
    (tree / "needle.bin").write_bytes(b"needle\0")
    (tree / "latin.txt").write_bytes(b"the needle caf\xe9 and many other words")

    assert hits(search("**", contains="needle")) == {
        "src/app.py:2: \tprint('needle')",
        "src/app.py:3: needle again",
        "latin.txt:1: the needle caf\\xe9 and many other words",
    }
    assert hits(search("**/*.py", contains="Needle")) == {"No lines contain 'Needle' in '**/*.py'."}
    assert hits(search("tests/**", contains="")) == {"tests/test_app.py"}
    refusal = search("**", contains="a\nb")
    assert isinstance(refusal, ToolFailure)
    assert "line break" in refusal.message


def test_lines_are_counted_and_long_ones_cut(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * 65_530 + "needle" + "y" * 70_000 + "needle\nneedle\n")
    (tmp_path / "many.txt").write_text("needle\n" * 30)
    answer = str(SearchFilesTool.in_directory(tmp_path)("*.txt", contains="needle")).splitlines()

    assert answer[0].startswith("long.txt:1: ...xxx")
    assert "needle" in answer[0]
    assert len(answer[0]) < 250
    assert answer[1] == "long.txt:2: needle"
    assert answer[9:] == ["many.txt:8: needle", "... and 22 more; narrow the pattern to see them"]


def test_lines_are_found_wherever_pieces_meet(tmp_path: Path) -> None:
    for before in range(65_528, 65_540):
        (tmp_path / "a.txt").write_text("x" * before + "\nneedle\n" + "y" * 140_000 + "needle\n")
        answer = SearchFilesTool.in_directory(tmp_path)("a.txt", contains="needle")
        lines = str(answer).splitlines()

        assert lines[0] == "a.txt:2: needle"
        assert lines[1].startswith("a.txt:3: ")
        assert len(lines) == 2


def test_millions_of_empty_lines_are_searched_quickly(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n" * 8_000_000 + b"needle")
    began = thread_time()

    answer = SearchFilesTool.in_directory(tmp_path)("a.txt", contains="needle")
    assert answer == "a.txt:8000001: needle"
    assert thread_time() - began < 2


def test_reading_is_bounded_and_said(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("a line with a needle\n" * 100)
    policy = FilePolicy(max_searched_bytes=5000, max_results=1000)
    answer = SearchFilesTool.in_directory(tmp_path, policy=policy)("*.txt", contains="needle")

    assert str(answer).splitlines()[-1] == (
        "(Stopped after reading 5000 bytes; narrow the pattern.)"
    )
    assert len(str(answer).splitlines()) == 240


@pytest.mark.parametrize("contains", [None, "needle"])
def test_a_cancelled_search_stops_in_the_middle(contains: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a line\n" * 500_000)
    for number in range(100):
        (tmp_path / f"b{number}").write_text("")
    answer = SearchFilesTool.in_directory(tmp_path)("*.txt", contains, cancelled(after=20))

    assert isinstance(answer, ToolFailure)
    assert "was cancelled" in answer.message


def test_names_with_line_breaks_stay_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb.txt").write_text("x")

    assert SearchFilesTool.in_directory(tmp_path)("*.txt") == "a\\nb.txt"


def test_trees_too_deep_for_one_path_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("")
    opened = [os.open(tmp_path, os.O_RDONLY)]
    try:
        for _ in range(300):
            os.mkdir("d", dir_fd=opened[-1])
            opened.append(os.open("d", os.O_RDONLY, dir_fd=opened[-1]))
        answer = SearchFilesTool.in_directory(tmp_path)("**/*.txt")
    finally:
        os.close(opened.pop())
        while opened:  # by hand, since what clears temporary directories gives up on such depths
            os.rmdir("d", dir_fd=opened[-1])
            os.close(opened.pop())

    assert str(answer).splitlines() == ["x.txt", "(1 directory could not be read.)"]
