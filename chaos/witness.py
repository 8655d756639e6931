"""The outside ledger: a process of its own that alone knows which tool effects really happened.

It is asked over a socket, appends every line to its own file and syncs it before it answers. For a
key that was used before, an idempotent effect is not applied again but counted.
"""

import asyncio
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Witness:
    """The server side. ``lines`` are those of its file."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._receipts: dict[str, str] = {}

    def told(self, line: dict[str, Any]) -> dict[str, Any]:
        """Keep what was told; the answer for the one who told it."""
        line = {"at": time.time(), **line}
        if line["op"] == "effect":
            key = line["key"]
            line["applied"] = line["effect"] != "idempotent" or key not in self._receipts
            if line["applied"]:
                self._receipts[key] = secrets.token_hex(8)
            line["receipt"] = self._receipts[key]
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fdatasync(self._file)
        return line

    async def serve(self, address: str) -> None:
        """Answer at that socket until cancelled."""
        server = await asyncio.start_unix_server(self._answer, address)
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self.told(json.loads(line))).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the one who spoke was killed in the middle of a line
        finally:
            writer.close()


def serve(file: str, address: str) -> None:
    """The witness process."""
    asyncio.run(Witness(Path(file)).serve(address))


class WitnessLine:
    """The side of those who tell it something. It blocks, so that a crash point is told before the
    process dies."""

    def __init__(self, address: str, who: str) -> None:
        self._who = who
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(30.0)
        for _ in range(200):
            try:
                self._socket.connect(address)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.05)
        else:
            raise ConnectionError(f"no witness answers at {address}")
        self._answers = self._socket.makefile("rb")

    def tell(self, op: str, **fields: Any) -> dict[str, Any]:
        """Tell it; returns when the line is on its disk."""
        line = {"op": op, "by": self._who, **fields}
        self._socket.sendall(json.dumps(line).encode() + b"\n")
        return json.loads(self._answers.readline())

    def close(self) -> None:
        """Hang up."""
        self._answers.close()
        self._socket.close()


def lines_of(file: Path) -> Sequence[dict[str, Any]]:
    """What the witness wrote; a last line that was cut off is left out."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if "\n" in line]
