"""Where measurements are kept, and on what machine they were taken.

``bench/results/<name>.json``: the newest run that was saved. The docs take figures from it.
"""

import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).parent / "results"
_PACKAGES = ("fastapi", "uvicorn", "sqlalchemy", "aiosqlite", "psycopg", "msgspec")
_SYNC_SECONDS = 0.5


def machine() -> dict[str, Any]:
    """What a figure depends on: processors, how busy they are, how fast the disk syncs."""
    return {
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "load_average": round(os.getloadavg()[0], 1),
        "disk_syncs_per_s": round(_disk_syncs_per_second()),
    }


def versions() -> dict[str, str]:
    """Of Python, SQLite and the packages that matter."""
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _disk_syncs_per_second() -> float:
    with TemporaryDirectory(prefix="bench-") as folder:
        file = os.open(Path(folder) / "synced", os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            count, began = 0, time.perf_counter()
            while time.perf_counter() - began < _SYNC_SECONDS:
                os.pwrite(file, b"x" * 4096, 0)
                os.fdatasync(file)
                count += 1
            return count / (time.perf_counter() - began)
        finally:
            os.close(file)


def save(name: str, document: Mapping[str, Any]) -> Path:
    """Keep a run; figures of parts that were not measured this time stay as they were."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{name}.json"
    before = load(name) or {}
    merged = {**before, **document}
    if "figures" in before and "figures" in document:
        merged["figures"] = {**before["figures"], **document["figures"]}
    file.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n")
    return file


def load(name: str) -> dict[str, Any] | None:
    """The newest saved run."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def say(text: str) -> None:
    """Tell the person who waits how far it is."""
    print(text, file=sys.stderr, flush=True)
