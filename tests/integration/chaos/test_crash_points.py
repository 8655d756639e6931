"""Crash points and the witness, with real processes: what dies has told so before."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chaos.witness import Witness, WitnessLine, lines_of

ROOT = Path(__file__).parents[3]
CHILD = """
import asyncio, sys
from chaos.crash_points import CrashingStore, CrashPoints
from chaos.witness import WitnessLine
from stepwell.stores.database_url import open_store

async def main(url, address, point, skip):
    points = CrashPoints(WitnessLine(address, "child"))
    store = CrashingStore(await open_store(url), points)
    if point == "freeze":
        points.freeze()
    else:
        points.arm(point, int(skip))

    async def nothing(tx):
        return None

    for _ in range(3):
        await store.write(nothing, name="step")
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def witness(tmp_path: Path) -> AsyncIterator[str]:
    address = str(tmp_path / "w.sock")
    serving = asyncio.create_task(Witness(tmp_path / "witness.jsonl").serve(address))
    await asyncio.sleep(0)
    yield address
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def child(tmp_path: Path, address: str, point: str, skip: int = 0) -> subprocess.Popen[bytes]:
    url = f"sqlite:///{tmp_path / point.replace(':', '-')}.db"
    command = [sys.executable, "-c", CHILD, url, address, point, str(skip)]
    return subprocess.Popen(command, cwd=ROOT)


def told(tmp_path: Path, op: str) -> list[Any]:
    return [line for line in lines_of(tmp_path / "witness.jsonl") if line["op"] == op]


async def test_a_process_dies_at_the_armed_point_and_has_told_the_witness(
    tmp_path: Path, witness: str
) -> None:
    async def code_at(point: str) -> int:
        with child(tmp_path, witness, point, skip=1) as process:
            return await asyncio.to_thread(process.wait, 60)

    points = ["before:step", "in:step", "after:step"]
    codes = await asyncio.gather(*map(code_at, points))
    assert codes == [-signal.SIGKILL] * 3
    assert {line["point"] for line in told(tmp_path, "crash")} == set(points)
    assert {line["point"] for line in told(tmp_path, "saw")} == set(points)


async def test_a_process_that_is_to_freeze_stops_and_goes_on_when_it_is_woken_up(
    tmp_path: Path, witness: str
) -> None:
    with child(tmp_path, witness, "freeze") as process:
        _, status = await asyncio.to_thread(os.waitpid, process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert told(tmp_path, "thaw") == []
        process.send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(process.wait, 90) == 0
    assert len(told(tmp_path, "thaw")) == 1
    assert told(tmp_path, "crash") == []


async def test_the_witness_applies_an_idempotent_effect_once_per_key(
    tmp_path: Path, witness: str
) -> None:
    line = await asyncio.to_thread(WitnessLine, witness, "test")

    def effect(kind: str, key: str) -> Any:
        return line.tell("effect", effect=kind, key=key, call="c", execution="e")

    first = await asyncio.to_thread(effect, "idempotent", "key")
    again = await asyncio.to_thread(effect, "idempotent", "key")
    other = await asyncio.to_thread(effect, "external", "key")
    line.close()
    assert (first["applied"], again["applied"], other["applied"]) == (True, False, True)
    assert first["receipt"] == again["receipt"] != other["receipt"]
    assert len(told(tmp_path, "effect")) == 3
