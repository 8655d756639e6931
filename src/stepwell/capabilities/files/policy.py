"""How much the file tools read, write, list and search at once."""

from msgspec import Struct, structs

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_texts
from stepwell.sandbox.host.names import PROTECTED_NAMES, check_names

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


class FilePolicy(Struct, frozen=True, kw_only=True):
    """The limits of the file tools.

    >>> FilePolicy(max_results=3).max_lines
    200
    """

    max_lines: int = 200
    """Lines that ``read_file`` shows when the model asks for no number of its own."""
    max_read_bytes: int = 32 * KIBIBYTE
    """Bytes that ``read_file`` shows, however many lines were asked for."""
    max_scanned_bytes: int = 512 * MEBIBYTE
    """Bytes that ``read_file`` goes through, a little more or less, to find the lines it shows."""
    max_entries: int = 50
    """Entries that ``list_dir`` shows."""
    max_results: int = 10
    """Hits that ``search_files`` shows; it counts the others."""
    max_visited: int = 100_000
    """Files and directories that one search or listing looks at."""
    max_searched_bytes: int = 64 * MEBIBYTE
    """Bytes that one search reads when it looks into files."""
    skipped_directories: tuple[str, ...] = (
        *(".git", ".hg", ".svn"),
        *("__pycache__", ".venv", "node_modules"),
    )
    """Names of directories that a search leaves out, unless its pattern names them."""
    max_write_bytes: int = 10 * MEBIBYTE
    """Bytes that ``write_file`` takes."""
    max_edit_bytes: int = 512 * MEBIBYTE
    """Size of a file that ``edit_file`` changes."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Names that are not written, at any depth, with all that is in them."""
    protect_host: bool = True
    """Whether what this process executes and imports is not written either."""

    def __post_init__(self) -> None:
        if isinstance(self.skipped_directories, str):
            raise ConfigurationError(
                f"skipped_directories wants a list of names, got {self.skipped_directories!r}; "
                f"write skipped_directories=({self.skipped_directories!r},)"
            )
        skipped = check_texts(self.skipped_directories, "skipped_directories")
        structs.force_setattr(self, "skipped_directories", skipped)
        structs.force_setattr(self, "protected", check_names(self.protected))
        if type(self.protect_host) is not bool:
            raise ConfigurationError(f"protect_host is True or False, not {self.protect_host!r}")
        for name in (field for field in self.__struct_fields__ if field.startswith("max_")):
            limit = getattr(self, name)
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise ConfigurationError(f"{name} must be a number above 0, got {limit!r}")


DEFAULT_POLICY = FilePolicy()
