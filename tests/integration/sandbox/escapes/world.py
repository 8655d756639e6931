"""The world outside of a sandbox, made so that every harm done to it is seen from outside."""

import contextlib
import ctypes
import fcntl
import os
import pty
import resource
import secrets
import select
import signal
import socket
import stat
import subprocess
import time
import tty
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
SHARED_BYTES = 4096
IPC_CREATE, IPC_REMOVE = 0o1000, 0
KERNEL_FILES = (
    *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/domainname"),
    *("/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness", "/sys/kernel/mm/ksm/pages_to_scan"),
)


class Harm(StrEnum):
    """What an attack may have achieved."""

    READ = "a secret was read"
    CHANGED = "something outside was changed"
    CONTACTED = "a listener was contacted"
    VICTIM = "another process was touched"
    LEFT = "something was left behind"
    EXCESS = "more was used than the policy allows"
    CLAIMED = "the kernel did what it must refuse"


class World:
    """Files, sockets, shared memory, a terminal and a process that no command may touch."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(12)
        # A time to sleep that nobody else sleeps, and the name of all that attacks leave behind.
        self.marker = f"300.{secrets.randbelow(10**15):015d}"
        self.key = int.from_bytes(secrets.token_bytes(3)) | 0x5000000
        self.work, self.outside, self.readable = (
            folder / name for name in ("work", "outside", "readable")
        )
        for path in (self.work, self.outside, self.readable):
            path.mkdir()
        (self.outside / "secret").write_text(self.token)
        (self.outside / "file").write_text("as it was")
        (self.outside / "folder").mkdir()
        (self.readable / "note").write_text("as it was")
        self.shared = Path("/dev/shm", f"{self.marker}-secret")
        self.shared.write_text(self.token)
        self._listeners = dict(self._listening())
        self.master, self.terminal = pty.openpty()
        tty.setraw(self.terminal)
        self.terminal_path = os.ttyname(self.terminal)
        # Inheritable on purpose: whoever starts processes has to see to it that it is not.
        self.leaky = os.open(self.outside / "secret", os.O_RDONLY)
        os.set_inheritable(self.leaky, True)
        self.victim = self._victim()
        self._priority = os.getpriority(os.PRIO_PROCESS, self.victim.pid)
        self._segment = self._share_memory()
        self._locked = os.open(self.outside / "file", os.O_RDONLY)
        fcntl.flock(self._locked, fcntl.LOCK_SH)
        self._make_queue()
        self._disk = self._start_of_disk()
        self._before = self._seen()

    def facts(self) -> Mapping[str, object]:
        """What attackers are told: they may guess anything but the secret."""
        return {
            "outside": str(self.outside),
            "secret": str(self.outside / "secret"),
            "file": str(self.outside / "file"),
            "readable": str(self.readable),
            "work": str(self.work),
            "shared": str(self.shared),
            "victim": self.victim.pid,
            "host": os.getpid(),
            "marker": self.marker,
            "key": self.key,
            "terminal": self.terminal_path,
            "device": os.stat("/").st_dev,
            "inode": (self.outside / "file").stat().st_ino,
            **{
                name: kept.getsockname()[1] for name, kept in self._listeners.items() if "p" in name
            },
        }

    def harm(self, output: str = "") -> dict[Harm, str]:
        """Everything that went wrong, by its kind."""
        found = {
            Harm.READ: self._read(output),
            Harm.CHANGED: self._changes(),
            Harm.CONTACTED: self._contacts(),
            Harm.VICTIM: self._victims_wounds(),
            Harm.LEFT: self._leftovers(),
            Harm.CLAIMED: "CLAIMED" if f"CLAIM-{self.marker}" in output else "",
        }
        return {kind: text for kind, text in found.items() if text}

    def alive(self) -> list[str]:
        """Processes that carry the marker in their command line."""
        return [line for _, line in self._marked()]

    def end_marked(self) -> None:
        """End the processes with the marker: they are this test's own."""
        for _ in range(200):
            marked = list(self._marked())
            for pid, _ in marked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if not marked:
                return
            time.sleep(0.01)

    def memory(self) -> int:
        """Bytes that processes with the marker use."""
        total = 0
        for pid, _ in self._marked():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
        return total

    def close(self) -> None:
        """Put everything back."""
        for path, content in self._before["kernel"].items():
            if content and _text(path) != content:
                Path(path).write_text(content)
        self.victim.kill()
        self.victim.wait()
        for listener in self._listeners.values():
            listener.close()
        for descriptor in (self.master, self.terminal, self.leaky, self._locked):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        LIBC.shmctl(self._segment, IPC_REMOVE, None)
        LIBC.msgctl(LIBC.msgget(self.key, 0), IPC_REMOVE, None)
        for queue in ("queue", "left"):
            LIBC.mq_unlink(f"/{self.marker}-{queue}".encode())
        for folder in ("/dev/shm", "/tmp", "/var/tmp"):
            for path in Path(folder).glob(f"{self.marker}*"):
                path.unlink()
        with contextlib.suppress(OSError):
            os.rmdir(f"/sys/fs/cgroup/{self.marker}")
        for line in Path("/proc/self/mounts").read_text().splitlines():
            mounted = line.split()[1]
            if mounted.startswith(f"{self.work}/"):
                LIBC.umount2(mounted.encode(), 2)

    def _listening(self) -> Iterator[tuple[str, socket.socket]]:
        unix = socket.AF_UNIX
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("stream", unix, socket.SOCK_STREAM, str(self.outside / "stream")),
            ("datagram", unix, socket.SOCK_DGRAM, str(self.outside / "datagram")),
            ("abstract", unix, socket.SOCK_STREAM, f"\0{self.marker}"),
            ("abstract datagram", unix, socket.SOCK_DGRAM, f"\0{self.marker}d"),
        ):
            listener = socket.socket(family, kind)
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            yield name, listener

    def _victim(self) -> "subprocess.Popen[bytes]":
        with open(self.outside / "secret", "rb") as secret:
            return subprocess.Popen(
                ["sleep", "600"],
                env={self.marker: self.token},
                cwd=self.outside,
                stdin=secret,
                # So that an attack on its group reaches nobody else.
                start_new_session=True,
            )

    def _share_memory(self) -> int:
        segment = LIBC.shmget(self.key, SHARED_BYTES, IPC_CREATE | 0o666)
        assert segment >= 0
        address = LIBC.shmat(segment, None, 0)
        ctypes.memmove(address, self.token.encode(), len(self.token))
        LIBC.shmdt(ctypes.c_void_p(address))
        return segment

    def _make_queue(self) -> None:
        opened = LIBC.mq_open(f"/{self.marker}-queue".encode(), os.O_CREAT, 0o600, None)
        assert opened >= 0
        os.close(opened)

    def _has_queue(self, name: str) -> bool:
        opened = LIBC.mq_open(f"/{self.marker}-{name}".encode(), os.O_RDONLY)
        if opened >= 0:
            os.close(opened)
        return opened >= 0

    def _start_of_disk(self) -> str:
        device = os.stat("/").st_dev
        try:
            with open(f"/dev/block/{os.major(device)}:{os.minor(device)}", "rb") as disk:
                disk.seek(1024)
                content = disk.read(256)
        except OSError:
            return ""
        return content.hex() if content.strip(b"\0") else ""

    def _seen(self) -> dict[str, dict[str, str]]:
        files = {
            str(path): f"{_facts(path.lstat())} {_text(path) if path.is_file() else ''}"
            f" {os.listxattr(path, follow_symlinks=False)}"
            for root in (self.outside, self.readable)
            for path in (root, *sorted(root.rglob("*")))
        }
        system = {
            path: str(_facts(os.lstat(path)))
            for path in ("/usr/bin/env", "/usr/lib", "/etc/passwd", "/dev/null", "/bin/sh")
        }
        return {"files": files, "system": system, "kernel": {p: _text(p) for p in KERNEL_FILES}}

    def _read(self, output: str) -> str:
        places = {"the output": output}
        for path in self.work.rglob("*"):
            if path.is_file() and not path.is_symlink():
                places[path.name] = _text(path)
        for name, text in places.items():
            if self.token in text:
                return f"the secret is in {name}"
            if self._disk and self._disk in text:
                return f"the disk's first bytes are in {name}"
        return ""

    def _changes(self) -> str:
        now = self._seen()
        changed = [
            f"{path}: {before.get(path)} -> {after.get(path)}"
            for before, after in ((self._before[part], now[part]) for part in now)
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        ]
        if os.path.exists("/etc/ld.so.preload"):
            changed.append("/etc/ld.so.preload")
            os.unlink("/etc/ld.so.preload")
        if os.path.exists(f"/sys/fs/cgroup/{self.marker}"):
            changed.append("a control group")
        if select.select([self.master, self.terminal], [], [], 0)[0]:
            changed.append("the terminal")
        if LIBC.msgget(self.key, 0) >= 0:
            changed.append("a message queue")
        if not self._has_queue("queue"):
            changed.append("a message queue of POSIX")
        return "; ".join(changed)

    def _contacts(self) -> str:
        ready = select.select(list(self._listeners.values()), [], [], 0.02)[0]
        return ", ".join(name for name, kept in self._listeners.items() if kept in ready)

    def _victims_wounds(self) -> str:
        pid = self.victim.pid
        if self.victim.poll() is not None:
            return f"it died: {self.victim.returncode}"
        status = dict(
            line.split(":\t", 1)
            for line in _text(f"/proc/{pid}/status").splitlines()
            if ":\t" in line
        )
        wounds = [
            f"state {status['State']}" if status["State"][0] not in "SR" else "",
            f"traced by {status['TracerPid']}" if status["TracerPid"] != "0" else "",
            "another priority" if os.getpriority(os.PRIO_PROCESS, pid) != self._priority else "",
            "other processors"
            if os.sched_getaffinity(pid) != os.sched_getaffinity(os.getpid())
            else "",
            "other limits"
            if resource.prlimit(pid, resource.RLIMIT_NOFILE)
            != resource.getrlimit(resource.RLIMIT_NOFILE)
            else "",
        ]
        return ", ".join(wound for wound in wounds if wound)

    def _leftovers(self) -> str:
        left = self.alive()
        left += [
            str(path) for path in Path("/dev/shm").glob(f"{self.marker}*") if path != self.shared
        ]
        left += ["a message queue"] if self._has_queue("left") else []
        for folder in ("/tmp", "/var/tmp"):
            left += [str(path) for path in Path(folder).glob(f"*{self.marker}*")]
        left += [
            f"{path} has its owner's rights"
            for path in self.work.rglob("*")
            if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID) and not path.is_dir()
        ]
        return "; ".join(left)

    def _marked(self) -> Iterator[tuple[str, str]]:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if self.marker in words and file.parent.name != str(os.getpid()):
                    yield file.parent.name, words


def _facts(facts: os.stat_result) -> tuple[object, ...]:
    kind = stat.S_IFMT(facts.st_mode)
    times = facts.st_mtime_ns if kind != stat.S_IFCHR else 0
    return facts.st_mode, facts.st_uid, facts.st_gid, facts.st_ino, times


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
