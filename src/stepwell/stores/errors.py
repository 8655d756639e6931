"""What can be wrong with a database itself."""

from stepwell.errors import ConfigurationError, SerializationError


class DamagedDataError(SerializationError):
    """What the database gave is not what was stored: a damaged file, or a row that was changed by
    something else."""


class SchemaVersionError(ConfigurationError):
    """The tables are of another version of Stepwell, or there are none. Nothing was changed."""

    def __init__(self, found: str | None, needed: str, *, is_newer: bool) -> None:
        self.found = found
        """The version of the tables; None if there are none."""
        self.needed = needed
        """The newest version that this Stepwell knows."""
        self.is_newer = is_newer
        """Whether a newer Stepwell has made them; otherwise they can be migrated."""
        fix = "Update Stepwell" if is_newer else "Open it with migrate=True once"
        super().__init__(f"{self.fault}. {fix}; nothing was changed")

    @property
    def fault(self) -> str:
        """What is wrong, without the fix."""
        if self.is_newer:
            return (
                f"the database is of version {self.found!r}, which this Stepwell does not know: a "
                f"newer one has used it (this one knows up to {self.needed!r})"
            )
        has = f"version {self.found!r}" if self.found else "no tables of Stepwell"
        return f"the database has {has} and version {self.needed!r} is needed"
