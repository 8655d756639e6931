"""An MCP server of the standard library alone, so that it starts at once; of the protocol as it was
before 2026. `python -m tests.servers.plain_mcp_server [mode]`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "plain", "version": "1"},
}
OPEN: dict[str, Any] = {"type": "object"}


def start_child() -> int:
    return subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def leave(code: int, words: str = "") -> None:
    sys.stderr.write(words)
    sys.stderr.flush()
    os._exit(code)


def babble(lines: int) -> str:
    sys.stdout.write("this is no message\n" * lines)
    return "babbled"


TOOLS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "process_id": os.getpid,
    "start_child": start_child,
    "sleep": sleep,
    "leave": leave,
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "babble": babble,
    "repeat": lambda text, times: text * times,
}


def listed(mode: str) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": OPEN} for name in TOOLS]
    if mode == "bad-schema":
        tools[0]["inputSchema"] = {"type": "object", "required": 5}
    if mode == "nameless":
        tools.append({"name": "", "inputSchema": OPEN})
    return tools


def answer(asked: dict[str, Any], mode: str) -> None:
    match asked["method"]:
        case "initialize":
            body: dict[str, Any] = {"result": INITIALIZED}
        case "tools/list":
            body = {"result": {"tools": listed(mode)}}
        case "tools/call":
            params = asked["params"]
            said = str(TOOLS[params["name"]](**params.get("arguments") or {}))
            body = {"result": {"content": [{"type": "text", "text": said}]}}
        case _:
            body = {"error": {"code": -32601, "message": "Method not found"}}
    line = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}, ensure_ascii=False)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "broken":
        sys.stderr.write(f"no config: {os.environ.get('TOKEN')}\n")  # noqa: TID251 - its own
        sys.exit(3)
    if mode == "mute":
        sys.stderr.write("still thinking\n")
        sys.stderr.flush()
        sys.stdin.buffer.read()
        return
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            threading.Thread(target=answer, args=(asked, mode), daemon=True).start()
    if mode == "stubborn":
        signal.pause()


if __name__ == "__main__":
    main()
