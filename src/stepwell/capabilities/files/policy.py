"""The limits of the file tools."""

from msgspec import Struct, structs

from stepwell.parameters import check_flag, check_integer, check_texts
from stepwell.sandbox.host.names import PROTECTED_NAMES, check_names

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


class FilePolicy(Struct, frozen=True, kw_only=True):
    """How much the file tools read, write, list and search at once, and what they never write.

    >>> FilePolicy(max_results=3).max_lines
    200
    """

    max_lines: int = 200
    """Lines that ``read_file`` shows if the model sets no limit."""
    max_read_bytes: int = 32 * KIBIBYTE
    """Bytes that ``read_file`` shows, whatever limit the model sets."""
    max_scanned_bytes: int = 512 * MEBIBYTE
    """Bytes that ``read_file`` scans to find the requested lines (approximate)."""
    max_entries: int = 50
    """Entries that ``list_dir`` shows."""
    max_results: int = 10
    """Matches that ``search_files`` shows; it counts the rest."""
    max_visited: int = 100_000
    """Files and directories that one search or listing visits."""
    max_searched_bytes: int = 64 * MEBIBYTE
    """Bytes that one search reads from files."""
    skipped_directories: tuple[str, ...] = (
        *(".git", ".hg", ".svn"),
        *("__pycache__", ".venv", "node_modules"),
    )
    """Names of directories that a search skips unless its pattern names them."""
    max_write_bytes: int = 10 * MEBIBYTE
    """Largest content that ``write_file`` accepts."""
    max_edit_bytes: int = 512 * MEBIBYTE
    """Largest file that ``edit_file`` changes."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Names that are never written, at any depth, including everything inside them."""
    protect_host: bool = True
    """Whether to refuse writes to what this process executes and imports."""

    def __post_init__(self) -> None:
        skipped = check_texts(self.skipped_directories, "skipped_directories")
        structs.force_setattr(self, "skipped_directories", skipped)
        structs.force_setattr(self, "protected", check_names(self.protected))
        check_flag(self.protect_host, "protect_host")
        for name in (field for field in self.__struct_fields__ if field.startswith("max_")):
            check_integer(getattr(self, name), name, least=1)


DEFAULT_POLICY = FilePolicy()
