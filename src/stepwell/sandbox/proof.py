"""Proves that a sandbox confines: a command in it attempts what it must not be able to do, and the
effects are checked from outside.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepwell.errors import SandboxError
from stepwell.ids import new_id
from stepwell.sandbox.environment import leaked_variables
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.sandbox import Ending, Sandbox, SandboxResult

SHORT_TIMEOUT, LONG_TIMEOUT = 0.3, 10.0
"""Timeouts of the attempts, in seconds; the second is used if the first was too short, on a busy
machine or for a sandbox that starts slowly."""
HEARTBEAT_SECONDS = 0.15
_READY = "all was tried"
_VARIABLES = "the variables are"
_PROCESSES = "those of other processes are"

_ATTEMPTS = f"""
cat "$1/canary" 2>/dev/null
echo written 2>/dev/null >"$1/written"
echo works >works
exec 2>/dev/null
tcp() {{
    if command -v bash; then bash -c "exec 3<>/dev/tcp/127.0.0.1/$1"
    elif command -v python3; then
        python3 -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)"
    elif command -v nc; then nc -w 1 127.0.0.1 "$1" </dev/null
    elif command -v wget; then wget -T 1 -O - "http://127.0.0.1:$1/"
    elif command -v curl; then curl -m 1 "http://127.0.0.1:$1/"
    else return 1
    fi >connected || :
}}
tcp "$2" && echo tried >socket
echo "{_VARIABLES}"; env
echo "{_PROCESSES}"; cat /proc/*/environ | tr '\\0' '\\n'; echo
beat='while :; do echo beat >>"$0"; sleep 0.02; done'
(setsid sh -c "$beat" detached </dev/null >/dev/null &)
(nohup sh -c "$beat" ignoring </dev/null >/dev/null &)
until [ -s detached ] && [ -s ignoring ]; do sleep 0.01; done
echo "{_READY}"
sleep 60
"""


async def prove(sandbox: Sandbox) -> None:
    """Raise ``SandboxError``, with everything it let through, if a sandbox does not confine.

    A command in it tries to read and write outside, to see variables of this process, to open a
    connection to it, and to leave processes behind that survive the timeout.
    """
    async with private_folder("stepwell-proof-") as folder:
        inside, outside = folder / "inside", folder / "outside"
        inside.mkdir()
        outside.mkdir()
        canary = new_id()
        (outside / "canary").write_text(canary, encoding="ascii")
        connections: list[object] = []
        result = await _run_attempts(sandbox, inside, outside, connections)
        faults = [
            *_leaks(result.stdout, canary, ExecutionPolicy.in_(inside)),
            *(["it wrote a file outside"] if any(outside.glob("written")) else []),
            *(["it opened a connection though it has no network"] if connections else []),
            *await _survivors(inside),
        ]
        if faults:
            raise SandboxError(f"{sandbox.name} does not confine here: {'; '.join(faults)}")


async def _run_attempts(
    sandbox: Sandbox, inside: Path, outside: Path, connections: list[object]
) -> SandboxResult:
    """Run the attempts, with a longer timeout if there was no time for all of them."""

    async def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        argv = ["sh", "-c", _ATTEMPTS, "proof", str(outside), str(port)]
        result = await sandbox.run(argv, ExecutionPolicy.in_(inside, timeout=SHORT_TIMEOUT))
        if _READY not in result.stdout and result.ending is Ending.TIMED_OUT:
            policy = ExecutionPolicy.in_(inside, timeout=LONG_TIMEOUT)
            result = await sandbox.run(argv, policy)
        _check_worked(sandbox, inside, result)
        return result
    finally:
        server.close()
        await server.wait_closed()


def _check_worked(sandbox: Sandbox, inside: Path, result: SandboxResult) -> None:
    """Raise if the sandbox blocks what it must allow, or if an attempt could not be made."""
    if _READY not in result.stdout:
        raise SandboxError(f"{sandbox.name} does not work here: {_describe(result)}")
    if result.ending is not Ending.TIMED_OUT:
        raise SandboxError(f"{sandbox.name} does not enforce the timeout: {_describe(result)}")
    if not (inside / "works").is_file():
        raise SandboxError(f"{sandbox.name} does not work here: it could not write where it may")
    if not (inside / "socket").is_file():
        raise SandboxError(
            f"{sandbox.name} can't be proven: a command in it has neither bash nor python3, nc, "
            "wget or curl to try a connection with"
        )


def _leaks(stdout: str, canary: str, policy: ExecutionPolicy) -> Iterator[str]:
    if canary in stdout:
        yield "it read a file outside"
    _, _, rest = stdout.partition(_VARIABLES)
    own, _, others = rest.partition(_PROCESSES)
    for lines, whose in ((own, "its own variables"), (others, "those of other processes")):
        pairs = (line.partition("=") for line in lines.splitlines())
        seen = {name: value for name, _, value in pairs}
        if names := leaked_variables(seen, policy):
            yield f"among {whose} it saw {', '.join(names)}"


async def _survivors(inside: Path) -> Sequence[str]:
    before = _beats(inside)
    await asyncio.sleep(HEARTBEAT_SECONDS)
    return ["what it started outlived the timeout"] if _beats(inside) != before else []


def _beats(inside: Path) -> list[int]:
    return [os.path.getsize(inside / name) for name in ("detached", "ignoring")]


def _describe(result: SandboxResult) -> str:
    """Describe the end of the output, for a message."""
    output = (result.stderr.strip() or result.stdout.strip() or "no output")[-300:]
    return f"{output} (exit code {result.exit_code}, {result.ending})"
