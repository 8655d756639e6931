"""What ``import stepwell`` costs, and that doubles stay out of the library."""

import subprocess
import sys

import pytest

DOORS = [
    "pydantic",
    "pydantic_core",
    "httpx",
    "httpx2",
    "mcp",
    "anyio",
    "yaml",
    "fastapi",
    "starlette",
    "alembic",
    "click",
    "psycopg",
    "sqlalchemy",
    "uvicorn",
]


def modules_after(program: str) -> set[str]:
    """The modules a fresh interpreter has loaded after running the program."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "program",
    [
        "import stepwell",
        "from stepwell import *",
        "from stepwell import Agent, AgentBuilder, tool",
        "import stepwell.testing, stepwell.events, stepwell.errors",
    ],
)
def test_importing_loads_no_web_database_or_validation_package(program: str) -> None:
    loaded = modules_after(program)

    assert "stepwell" in loaded
    assert loaded.isdisjoint(DOORS)


def test_the_library_does_not_load_its_doubles() -> None:
    loaded = modules_after("from stepwell import *")

    assert not any(name.startswith("stepwell.testing") for name in loaded)
