"""A test run that is killed leaves no PostgreSQL server behind."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.servers.postgres_server import postgres_programs

_ROOT = Path(__file__).parents[3]
_RUN = """
import sys, time
from pathlib import Path
from tests.servers.postgres_server import postgres_running
with postgres_running(Path(sys.argv[1])) as server:
    print(server._process.pid, server._folder, flush=True)
    time.sleep(60)
"""


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_test_run_leaves_no_server_and_no_folder() -> None:
    if (programs := postgres_programs()) is None or not Path("/proc/self").exists():
        pytest.skip("needs PostgreSQL and /proc")
    command = [sys.executable, "-c", _RUN, programs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        assert _is_there(int(pid))
        run.send_signal(signal.SIGKILL)
    pause = threading.Event()
    for _ in range(200):
        if not _is_there(int(pid)) and not Path(folder).exists():
            return
        pause.wait(0.05)
    pytest.fail("the server, or its folder, is still there after 10 s")
