"""A database that can't be written is refused and reported: its file moved or deleted, its disk
full, its lock held by a process that is frozen."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest

from stepwell.server import write_probe
from stepwell.stores.sqlite import file_lock
from tests.integration.server.serving import DATABASE, Served, serving

SEND = {"content": "hello"}


@pytest.fixture(autouse=True)
def probe_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_probe, "PROBE_SECONDS", 0.0)


async def test_writes_to_a_file_that_was_renamed_are_refused_until_it_is_back(
    served: Served, folder: Path, ada: httpx2.AsyncClient
) -> None:
    assert (await ada.post("/agent/messages", json=SEND)).status_code == 202
    await ada.get("/agent/sessions")
    (folder / DATABASE).rename(folder / "elsewhere.db")

    refused = await ada.post("/agent/messages", json=SEND)
    ready = await ada.get("/ready")
    sessions = [await ada.get("/agent/sessions") for _ in range(9)]

    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "store_unavailable"
    assert "file was moved, replaced or deleted" in refused.json()["detail"]
    assert "restart" in refused.json()["detail"]
    assert str(folder) not in refused.text + ready.text
    assert ready.status_code == 503
    assert "file was moved" in ready.json()["checks"]["database"]
    assert {it.status_code for it in sessions} == {200}
    assert not (folder / DATABASE).exists(), "no empty database is made in its place"

    (folder / "elsewhere.db").rename(folder / DATABASE)
    assert (await ada.post("/agent/messages", json=SEND)).status_code == 202
    assert (await ada.get("/ready")).status_code == 200


@pytest.mark.parametrize("what", ["deleted", "replaced", "folder deleted", "log deleted"])
async def test_writes_to_a_file_that_is_gone_are_refused(
    tmp_path: Path, migrated_sqlite: Path, what: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / DATABASE
    shutil.copy(migrated_sqlite, file)
    served_at = serving(folder)
    served = await served_at.__aenter__()
    async with served.client() as ada:
        assert (await ada.post("/agent/messages", json=SEND)).status_code == 202
        if what == "folder deleted":
            shutil.rmtree(folder)
        elif what == "log deleted":
            file.with_name(f"{DATABASE}-wal").unlink()
        else:
            file.unlink()
        if what == "replaced":
            shutil.copy(migrated_sqlite, file)

        refused = await ada.post("/agent/messages", json=SEND)
        ready = await ada.get("/ready")

    assert (refused.status_code, ready.status_code) == (503, 503)
    assert "file was moved, replaced or deleted" in refused.json()["detail"]
    folder.mkdir(exist_ok=True)
    await served_at.__aexit__(None, None, None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own of 16 MB; only root can have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk takes root")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


async def test_a_full_disk_is_reported(
    small_disk: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.stores.retries.PATIENCE", 0.0)
    shutil.copy(migrated_sqlite, small_disk / DATABASE)
    filler = small_disk / "filler"
    async with serving(small_disk) as served, served.client() as ada:
        assert (await ada.get("/ready")).status_code == 200
        fill(filler)
        # Small ones may still fit into what SQLite's log has already.
        refused = await ada.post("/agent/messages", json={"content": "x" * 20_000})
        ready = await ada.get("/ready")
        # The write alone notices it as well, as with a quota, which statvfs does not know.
        monkeypatch.setattr("stepwell.stores.sqlite.database_file._LEAST_FREE", 0)
        found = [await served.services.write_probe.find_fault(served.store, served.services.clock)]
        while found[-1] is None and len(found) < 500:
            await ada.post("/agent/messages", json=SEND)
            probe = served.services.write_probe
            found.append(await probe.find_fault(served.store, served.services.clock))
        filler.unlink()

        assert refused.status_code == 503
        assert "disk is full" in refused.json()["detail"]
        assert ready.status_code == 503
        assert "disk is full" in ready.json()["checks"]["database"]
        assert "disk is full" in (found[-1] or "")
        assert (await ada.get("/ready")).status_code == 200
        assert (await ada.post("/agent/messages", json=SEND)).status_code == 202


def fill(filler: Path) -> None:
    """Take all that the disk has left."""
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


HOLDER = """
import asyncio, sys
from stepwell.stores.database_url import open_store

async def main():
    store = await open_store(sys.argv[1])
    async def hold(tx):
        print("inside", flush=True)
        await asyncio.sleep(3600)
    await store.write(hold, name="hold")

asyncio.run(main())
"""


async def test_a_process_that_is_frozen_inside_a_write_is_named(
    served: Served, folder: Path, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.stores.retries.PATIENCE", 0.0)
    monkeypatch.setattr(file_lock, "_LONGEST_WAIT", 1.0)
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        dedent(HOLDER),
        f"sqlite:///{folder / DATABASE}",
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert await asyncio.wait_for(holder.stdout.readline(), 60) == b"inside\n"
        os.kill(holder.pid, signal.SIGSTOP)
        refused = await ada.post("/agent/messages", json=SEND)
        ready = await ada.get("/ready")
    finally:
        holder.kill()
        await holder.wait()

    assert (refused.status_code, ready.status_code) == (503, 503)
    named = rf"process {holder.pid} \(\S+, stopped by a signal\) holds its write lock"
    assert re.search(named, refused.json()["detail"])
    assert f"process {holder.pid}" in ready.json()["checks"]["database"]
    assert (await ada.post("/agent/messages", json=SEND)).status_code == 202


async def test_ready_writes_only_now_and_then(
    served: Served, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_probe, "PROBE_SECONDS", 3600.0)
    writes: list[None] = []
    check = type(served.store).check_writable

    async def counted(store: object) -> None:
        writes.append(None)
        await check(store)  # type: ignore[arg-type]

    monkeypatch.setattr(type(served.store), "check_writable", counted)
    answers = await asyncio.gather(*(ada.get("/ready") for _ in range(20)))
    answers += [await ada.get("/ready") for _ in range(20)]

    assert {it.status_code for it in answers} == {200}
    assert len(writes) == 1
