"""What sandlock's own program decides by itself: its filter of calls, and what it is told."""

import errno

import pytest

from stepwell.sandbox.sandlock import SandlockSandbox
from stepwell.sandbox.sandlock_child.filter import ARCHITECTURES, program
from stepwell.sandbox.sandlock_child.order import Order

NUMBERS = {
    name: number
    for number, name in enumerate(
        (
            *("socket", "prlimit64", "setpriority", "sched_setaffinity", "ioprio_set", "ioctl"),
            *("inotify_init1", "syslog", "chroot", "utimes", "read", "openat", "mknod"),
        )
    )
}
ALLOWED, NOT_PERMITTED, NO_ACCESS = None, errno.EPERM, errno.EACCES


def decide(
    call: str | int,
    *arguments: int,
    network: bool = False,
    machine: str = "x86_64",
    native: bool = True,
) -> int | None:
    """What the kernel would make of a call: None if it is allowed, else its error."""
    steps = program(lambda name: NUMBERS.get(name, -1), machine, network=network)
    number = NUMBERS[call] if isinstance(call, str) else call
    data = {0: number, 4: ARCHITECTURES[machine] if native else 1}
    data |= {16 + 8 * index: value & 0xFFFFFFFF for index, value in enumerate(arguments)}
    at = loaded = 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                loaded = data.get(operand, 0)
            case 0x15:
                at += if_true if loaded == operand else if_false
            case 0x45:
                at += if_true if loaded & operand else if_false
            case 0x35:
                at += if_true if loaded >= operand else if_false
            case _:
                return None if operand == 0x7FFF0000 else operand & 0xFFFF


@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        ("read", (0,), ALLOWED),
        ("socket", (1, 1, 0), ALLOWED),
        ("socket", (2, 1, 0), NO_ACCESS),
        ("socket", (2, 1, 262), NO_ACCESS),
        ("socket", (10, 2, 0), NO_ACCESS),
        ("socket", (16, 3, 0), NO_ACCESS),
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (1234, 7), NOT_PERMITTED),
        ("prlimit64", (-1, 7), NOT_PERMITTED),
        ("setpriority", (0, 0, 5), ALLOWED),
        ("setpriority", (0, 77, 5), NOT_PERMITTED),
        ("setpriority", (2, 0, 5), NOT_PERMITTED),
        ("sched_setaffinity", (0,), ALLOWED),
        ("sched_setaffinity", (77,), NOT_PERMITTED),
        ("ioprio_set", (1, 0), ALLOWED),
        ("ioprio_set", (1, 77), NOT_PERMITTED),
        ("ioctl", (0, 0x5401), ALLOWED),
        ("ioctl", (0, 0x5412), NOT_PERMITTED),
        ("ioctl", (3, 0x40086602), NOT_PERMITTED),
        ("inotify_init1", (), NOT_PERMITTED),
        ("syslog", (3,), NOT_PERMITTED),
        ("chroot", (), NOT_PERMITTED),
        ("utimes", (), NOT_PERMITTED),
        ("openat", (-100, 0, 0o101, 0o644), ALLOWED),
        ("openat", (-100, 0, 0, 0o6777), ALLOWED),
        ("openat", (-100, 0, 0o101, 0o4755), NOT_PERMITTED),
        ("openat", (-100, 0, 0o20200001, 0o2755), NOT_PERMITTED),
        ("mknod", (0, 0o100644), ALLOWED),
        ("mknod", (0, 0o104755), NOT_PERMITTED),
    ],
)
def test_calls_are_decided_by_their_arguments(
    call: str, arguments: tuple[int, ...], answer: int | None
) -> None:
    for machine in ARCHITECTURES:
        assert decide(call, *arguments, machine=machine) == answer


def test_with_the_network_on_every_family_is_left_to_sandlock() -> None:
    assert decide("socket", 2, 1, 0, network=True) is ALLOWED


def test_calls_of_another_architecture_are_refused() -> None:
    assert decide("read", native=False) == NOT_PERMITTED
    assert decide(0x40000000) == NOT_PERMITTED


def test_an_order_keeps_options_and_the_command_apart() -> None:
    order = Order(
        ["--read", "/a", "--memory", "5", "--read", "/b", "--", "ls", "--", "--read", "x"]
    )
    assert order.argv == ["ls", "--", "--read", "x"]
    assert order.all("--read") == ["/a", "/b"]
    assert (order.number("--memory"), order.number("--processes"), order.one("--x")) == (5, 0, "")


def test_another_system_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert SandlockSandbox().unavailable() == "sandlock needs Linux, and this is darwin"


def test_another_machine_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert "this is riscv64" in str(SandlockSandbox().unavailable())


@pytest.mark.parametrize(("version", "told"), [(-1, "none"), (3, "3")])
def test_an_old_kernel_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, version: int, told: str
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("stepwell.sandbox.sandlock._landlock_version", lambda: version)
    assert str(SandlockSandbox().unavailable()).endswith(f"this kernel has {told}")


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("stepwell.sandbox.sandlock._landlock_version", lambda: 6)
    monkeypatch.setattr("stepwell.sandbox.sandlock._library", lambda: None)
    assert "pip install 'stepwell[sandbox]'" in str(SandlockSandbox().unavailable())
