"""What can be wrong with a database itself."""

from stepwell.errors import ConfigurationError, SerializationError


class DamagedDataError(SerializationError):
    """What the database gave is not what was stored: a damaged file, or a row that was changed by
    something else."""


class SchemaVersionError(ConfigurationError):
    """The tables are of another version of Stepwell, or there are none."""
