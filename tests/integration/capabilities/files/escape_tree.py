"""A base directory among things that must not be reached, and the paths that try to reach them."""

import ctypes
import errno
import os
import socket
import sys
from pathlib import Path

CANARY = "CANARY-7f3a-outside"
SYSTEM_SECRET = "root:x:0:0"


def kernel_has_openat2() -> bool:
    """Asked of the kernel itself: bad arguments are answered otherwise than an unknown call."""
    if not sys.platform.startswith("linux"):
        return False
    ctypes.CDLL(None, use_errno=True).syscall(437, -1, None, None, 0)
    return ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)


def build(outer: Path) -> Path:
    """The tree; returns the base directory in it."""
    base = outer / "base"
    outside = outer / "outside"
    for directory in (base / "dir" / "deep", base / "..hidden", outside / "sub"):
        directory.mkdir(parents=True)
    (outer / "base-evil").mkdir()
    (outer / "base.txt").write_text(CANARY)
    (outer / "base-evil" / "secret.txt").write_text(CANARY)
    for name in ("secret.txt", "sub/secret.txt", "inside.txt", "passwd"):
        (outside / name).write_text(f"{CANARY}\nsecond line\n")
    for name in ("inside.txt", "dir/nested.txt", "dir/deep/file.txt", "..hidden/x.txt"):
        (base / name).write_text("inside\n")
    for link, target in links(outer).items():
        (base / link).symlink_to(target)
    os.mkfifo(base / "fifo")
    _make_socket(base / "socket")
    return base


def links(outer: Path) -> dict[str, str]:
    """Symlinks in the base directory, and where they lead."""
    return {
        "file_in": "inside.txt",
        "dir_in": "dir",
        "dir/back_in": "../inside.txt",
        "file_out": "../outside/secret.txt",
        "file_out_abs": f"{outer}/outside/secret.txt",
        "dir_out": "../outside",
        "dir_out_slash": "../outside/",
        "dir_out_abs": f"{outer}/outside",
        "dir_out_dots": "dir/deep/../../../outside",
        "up": "..",
        "dir/up_up": "../..",
        "dir/deep/up_up_up": "../../..",
        "evil": "../base-evil",
        "chain_1": "chain_2",
        "chain_2": "chain_3",
        "chain_3": "dir_out",
        "through_in": "dir_in/up_up",
        "file_abs_in": f"{outer}/base/inside.txt",
        "loop_a": "loop_b",
        "loop_b": "loop_a",
        "self": "self",
        "missing_in": "new-by-link.txt",
        "missing_out": "../outside/new-by-link.txt",
        "missing_out_abs": f"{outer}/outside/new-by-link.txt",
        "missing_dir_out": "../outside/new-dir",
        "slash": "/",
        "etc": "/etc",
        "proc_root": "/proc/self/root",
        "proc_cwd": "/proc/self/cwd",
        "proc_fd": "/proc/self/fd",
        "dev_null": "/dev/null",
    }


def _make_socket(path: Path) -> None:
    """Bound by a short relative name, since the address of a socket is limited to 108 bytes."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{descriptor}/{path.name}")
    finally:
        os.close(descriptor)


def outside_of(base: Path) -> dict[str, tuple[object, ...]]:
    """Everything beside the base directory as it is now: kind, mode, owner, content, times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(base.parent.rglob("*")):
        if path == base or base in path.parents:
            continue
        about = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (about.st_mode, about.st_uid, about.st_ino, about.st_mtime_ns, content)
    for name in ("/etc/passwd", "/etc", "/dev/null"):
        found[name] = (os.stat(name).st_mode, os.stat(name).st_mtime_ns // 10**9)
    return found


_SECRETS = ("secret.txt", "sub/secret.txt", "inside.txt", "new.txt")
_WAYS_OUT = (
    *("dir_out", "dir_out_slash", "dir_out_abs", "dir_out_dots", "chain_1", "chain_2", "chain_3"),
    *("up/outside", "dir/up_up/outside", "dir/deep/up_up_up/outside", "through_in/outside"),
    *("dir_in/up_up/outside", "slash{outer}/outside", "proc_root{outer}/outside"),
)

PATHS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            # climbing
            *("../" * n + "etc/passwd" for n in range(1, 17)),
            *("dir/" + "../" * n + "outside/secret.txt" for n in range(1, 5)),
            *("../outside/" + name for name in _SECRETS),
            *("./../outside/secret.txt", "dir/deep/../../../outside/secret.txt"),
            *("..//outside//secret.txt", "dir/.././.././outside/secret.txt", "..", "../", "../.."),
            *("../base", "../base/inside.txt", "../base/../outside/secret.txt", "../base-evil"),
            *("../base-evil/secret.txt", "../base.txt", "nothing/../../outside/secret.txt"),
            *("inside.txt/../../outside/secret.txt", "fifo/../../outside/secret.txt"),
            *("..hidden/../../outside/secret.txt", "./../base-evil/new.txt", "dir/..", "dir/../.."),
            # absolute
            *(
                "/etc/passwd",
                "//etc/passwd",
                "///etc//passwd",
                "/./etc/passwd",
                "/etc/../etc/passwd",
            ),
            *("/", "//", "/..", "/dev/null", "/dev/stdin", "/dev/fd/0", "/dev/tty", "/dev/zero"),
            *("/proc/self/environ", "/proc/self/cmdline", "/proc/1/environ", "/proc/self/mem"),
            *("/proc/self/root/etc/passwd", "/proc/self/cwd/../outside/secret.txt"),
            "/proc/self/root{outer}/outside/secret.txt",
            *("{outer}/outside/" + name for name in _SECRETS),
            *("{outer}", "{outer}/outside", "{outer}/outside/", "{base}-evil", "{base}.txt"),
            *("{base}-evil/secret.txt", "{base}-evil/new.txt", "{base}/../outside/secret.txt"),
            *("{base}/../base-evil/secret.txt", "{base}/./../outside/secret.txt", "{base}/.."),
            *("{base}//../outside/secret.txt", "{base}/dir/../../outside/secret.txt"),
            *("{base}/dir_out/secret.txt", "{base}/file_out", "//{base}/../outside/secret.txt"),
            *("{base}/../base/../outside/secret.txt", "{outer}/base/up/outside/secret.txt"),
            "{outer}/outside/../base/file_out",
            # symlinks
            *(f"{way}/{name}" for way in _WAYS_OUT for name in _SECRETS),
            *("file_out", "file_out_abs", "file_out/", "./file_out", "dir/../file_out", "evil"),
            *("evil/secret.txt", "evil/new.txt", "up", "up/base.txt", "up/base/file_out"),
            *("dir_out", "dir_out/", "dir_out/.", "dir_out/..", "dir_out/../outside/secret.txt"),
            *("dir_out/../base/inside.txt", "chain_1", "through_in", "loop_a", "loop_a/x", "self"),
            *("self/../../outside/secret.txt", "missing_out", "missing_out_abs"),
            *("missing_dir_out", "missing_dir_out/new.txt", "missing_in/../../outside/secret.txt"),
            *("slash", "slash/etc/passwd", "etc", "etc/passwd", "proc_root/etc/passwd"),
            *("proc_cwd", "proc_cwd/../outside/secret.txt", "proc_fd", "proc_fd/0", "proc_fd/1"),
            *("file_in/../../outside/secret.txt", "dir_in/../../outside/secret.txt"),
            *("dir/back_in/../../../outside/secret.txt", "file_abs_in", "dir_in/up_up"),
            # special files
            *("fifo", "fifo/x", "socket", "socket/x", "dev_null", "dev_null/x"),
            # NUL, lengths, odd characters
            *(
                "\0",
                "inside.txt\0",
                "\0../outside/secret.txt",
                "inside.txt\0/../../outside/secret.txt",
            ),
            *("../outside/secret.txt\0", "../outside/secret.txt\0.png", "dir\0/../../outside"),
            *(
                "a" * 255,
                "a" * 256,
                "a" * 5000,
                "é" * 200,
                "a/" * 300 + "x",
                "../" * 1300 + "etc/passwd",
            ),
            *("dir/../" * 100 + "../outside/secret.txt", "dir/../" * 700 + "../outside/secret.txt"),
            *("./" * 2000 + "../outside/secret.txt", "/" * 4000 + "etc/passwd", "x" * 100_000),
            *("..\\outside\\secret.txt", "..\\..\\etc\\passwd", "C:\\Windows\\win.ini"),
            *("\\\\server\\share\\x", "%2e%2e/outside/secret.txt", "..%2foutside%2fsecret.txt"),
            *("%252e%252e/outside", "..%c0%af..%c0%afetc/passwd", "..;/outside/secret.txt"),
            *(
                "\uff0e\uff0e/outside/secret.txt",
                "..\u2215outside\u2215secret.txt",
                "\u2024\u2024/outside",
            ),
            *("..\u200b/outside/secret.txt", "\u202e../outside/secret.txt", "\ufeff../outside"),
            *("\ud800", "\udcff", "\udcff/../../outside/secret.txt", "a\ud83d", "..\udc2f"),
            *(" ../outside/secret.txt", "../outside/secret.txt ", "\n../outside/secret.txt", " "),
            *("\t", "\r\n", "...", "....", "..../outside", ".../outside/secret.txt", "", "."),
            # what other programs would expand
            *("~", "~/secret.txt", "~root", "~root/.bashrc", "~/../outside/secret.txt", "./~/x"),
            *("$HOME/.bashrc", "${{HOME}}/.bashrc", "$(cat /etc/passwd)", "`cat /etc/passwd`"),
            *("|cat /etc/passwd", "; cat /etc/passwd", "file:///etc/passwd", "-rf", "--help"),
            *("file://{outer}/outside/secret.txt", "http://localhost/x", "{{base}}/../outside"),
            *("*/../../outside/secret.txt", "../outside/*", "../{{outside,base-evil}}/*"),
            *("**/../../outside/*", "{outer}/outside/*", "{outer}/**/secret.txt", "dir_out/*"),
            *(
                "up/**/secret.txt",
                "**/secret.txt",
                "dir_out/**",
                "[.][.]/outside/*",
                "?./outside/*",
            ),
        )
    )
)


def path_of(case: str, base: Path) -> str:
    """A path of the corpus in a real tree."""
    return case.format(outer=base.parent, base=base)
