"""Python, Stepwell, and what its extras bring."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from stepwell.app.diagnosis.findings import FROM_CLONE, Finding, broken, note, ok

OLDEST_PYTHON = (3, 11)
EXTRAS = {
    "server": ("aiosqlite", "alembic", "click", "fastapi", "jwt", "sqlalchemy", "uvicorn"),
    "postgres": ("psycopg",),
    "mcp": ("mcp",),
    "pydantic-ai": ("pydantic_ai",),
    "redis": ("redis",),
    "telemetry": ("opentelemetry.trace",),
}
"""Which modules an extra brings; that of the sandbox is looked at by itself."""
_FOR = {
    "server": "the app server",
    "postgres": "PostgreSQL",
    "mcp": "tools of MCP servers",
    "pydantic-ai": "models through pydantic-ai",
    "redis": "envelopes and the bus through Redis",
    "telemetry": "OpenTelemetry",
}


def package_findings() -> Iterator[Finding]:
    """Versions, and which extras are there."""
    shown = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield broken("python", f"Python {shown}", "install Python 3.11 or newer")
    else:
        yield ok("python", f"Python {shown}, {sys.executable}")
    yield _stepwell()
    for extra in EXTRAS:
        missing = missing_modules(extra)
        if not missing:
            yield ok(f"extra {extra}", f"installed, for {_FOR[extra]}")
        else:
            yield note(
                f"extra {extra}",
                f"not installed ({', '.join(missing)}); only needed for {_FOR[extra]}",
                f"pip install 'stepwell[{extra}]'",
            )


def missing_modules(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if not _is_there(name)]


def _stepwell() -> Finding:
    try:
        found = version("stepwell")
    except PackageNotFoundError:
        return note("stepwell", "runs from a folder and is not installed", FROM_CLONE)
    missing = [name for name in _requirements() if not _is_installed(name)]
    if missing:
        fix = FROM_CLONE
        return broken("stepwell", f"{found}, and it lacks {', '.join(missing)}", fix)
    return ok("stepwell", found)


def _requirements() -> Iterator[str]:
    """The distributions that it can't do without."""
    for line in requires("stepwell") or ():
        if ";" not in line:
            yield line.partition(">")[0].partition("<")[0].partition("=")[0].strip()


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
