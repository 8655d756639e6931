"""A real PgBouncer in transaction mode before a PostgreSQL server, from Debian's package."""

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import psycopg
from sqlalchemy import make_url

START_SECONDS = 20.0
_CONFIG = """
[databases]
* = host=127.0.0.1 port={server_port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
server_reset_query_always = 0
ignore_startup_parameters = extra_float_digits,options
"""


def pgbouncer_program() -> str | None:
    """The program, or None where there is none."""
    return shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer_running(program: str, postgres_url: str) -> Iterator[str]:
    """The same database behind PgBouncer, for the length of a block; its address."""
    url = make_url(postgres_url)
    with create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        config = Path(name) / "pgbouncer.ini"
        config.write_text(
            _CONFIG.format(server_port=url.port, user=url.username or "postgres", port=port)
        )
        Path(name).chmod(0o755)
        if user is not None:
            os.chown(name, pwd.getpwnam(user).pw_uid, -1)
        process = subprocess.Popen(
            [program, str(config)],
            user=user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        address = url.set(port=port).render_as_string(hide_password=False)
        try:
            _wait_for(address, process)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    pause = threading.Event()
    for _ in range(int(START_SECONDS / 0.1)):
        if process.poll() is not None:
            raise OSError(f"pgbouncer ended with code {process.returncode}")
        try:
            psycopg.connect(address, connect_timeout=2).close()
        except psycopg.OperationalError:
            pause.wait(0.1)
        else:
            return
    raise OSError("pgbouncer does not answer")
