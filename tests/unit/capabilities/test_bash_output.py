"""How much of a command's output the model sees, and how it is cleaned and labelled."""

from pathlib import Path
from typing import Any

import pytest

from stepwell import ConfigurationError, ToolFailure
from stepwell.capabilities.bash import BashPolicy
from stepwell.capabilities.bash.output import format_result, strip_terminal_codes
from stepwell.capabilities.bash.policy import DENIED
from stepwell.capabilities.bash.progress import INTERVAL_SECONDS, MAX_CHARS, OutputProgress
from stepwell.sandbox import Channel, ExecutionPolicy, SandboxResult

SMALL = BashPolicy(max_output_chars=10, head_chars=4, tail_chars=6)


def shown(policy: BashPolicy, *, cap: int = 1000, **result: Any) -> str:
    execution = ExecutionPolicy(directory=Path("/base"), max_output=cap)
    said = format_result(SandboxResult(exit_code=0, **result), policy, execution)
    assert not isinstance(said, ToolFailure)
    return said


def test_b245_of_a_long_output_the_head_and_the_tail_are_shown() -> None:
    marker, head, separator, tail, note = shown(SMALL, stdout="abcdefghijklmnopqrst").split("\n")

    assert "first 4 and the last 6" in marker
    assert head == "abcd"
    assert separator == "... [10 characters left out] ..."
    assert tail == "opqrst"
    assert "20 characters were captured" in note
    assert "grep" in note


def test_b245_an_output_at_the_limit_is_whole() -> None:
    assert shown(SMALL, stdout="abcdefghij\n") == "abcdefghij"


def test_b245_each_of_the_two_outputs_is_sampled_by_itself() -> None:
    said = shown(SMALL, stdout="short", stderr="abcdefghijklmnopqrst")

    assert said.startswith("short\n\nstderr:\n[Truncated")
    assert "\nabcd\n" in said
    assert "\nopqrst\n" in said


@pytest.mark.parametrize(("head", "tail"), [(0, 6), (4, 0)])
def test_b245_one_end_alone_can_be_wanted(head: int, tail: int) -> None:
    policy = BashPolicy(max_output_chars=10, head_chars=head, tail_chars=tail)
    lines = shown(policy, stdout="abcdefghijklmnopqrst").split("\n")

    assert lines[1] == "abcdefghijklmnopqrst"[:head]
    assert lines[3] == "abcdefghijklmnopqrst"[20 - tail :]


@pytest.mark.parametrize(
    ("settings", "tail"),
    [({}, 42_000), ({"max_output_chars": 90_000}, 82_000), ({"tail_chars": 100}, 100)],
)
def test_the_tail_fills_what_the_head_leaves(settings: dict[str, int], tail: int) -> None:
    policy = BashPolicy(**settings)
    said = shown(policy, cap=1_000_000, stdout="x" * 8_000 + "y" * 200_000)

    assert f"the first 8000 and the last {tail} characters" in said
    assert said.count("x") == 8_000
    assert said.count("y") == tail


def test_a_process_ended_for_its_memory_is_a_failure_whatever_the_exit_code() -> None:
    execution = ExecutionPolicy(directory=Path("/base"), max_memory=64 * 1024 * 1024)
    result = SandboxResult(exit_code=0, stdout="half", out_of_memory=True)
    said = format_result(result, BashPolicy(), execution)

    assert isinstance(said, ToolFailure)
    assert said.message.startswith("exit code 0; a process was killed for using more than 64 MiB")
    assert said.message.endswith("\nhalf")


def test_b245_characters_are_counted_and_not_bytes() -> None:
    assert shown(SMALL, stdout="ääääää語語語語") == "ääääää語語語語"
    assert "\nä語🎈x\n" in shown(SMALL, stdout="ä語🎈x" + "y" * 20)


def test_b247_beyond_the_capture_cap_the_end_is_labelled_with_the_cap() -> None:
    label, *kept, _ = shown(BashPolicy(), cap=12, stdout="line 8\nline 9", stdout_bytes=70).split(
        "\n"
    )

    assert "70 bytes were written" in label
    assert "the cap is 12 bytes" in label
    assert kept == ["line 8", "line 9"]


def test_b247_a_kept_end_that_is_still_too_long_is_cut_at_its_beginning() -> None:
    lines = shown(SMALL, cap=20, stdout="abcdefghijklmnopqrst", stdout_bytes=70).split("\n")

    assert lines[1] == "klmnopqrst"
    assert "last 10 characters" in lines[0]


def test_b247_an_output_just_at_the_cap_is_whole() -> None:
    assert shown(BashPolicy(), cap=4, stdout="abc\n", stdout_bytes=4) == "abc"


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\x1b[1;32mok\x1b[0m", "ok"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended\n3 failed\n\x1b]x", "\n3 failed\n"),
        ("\x1b(Bplain\x1b=", "plain"),
        ("bell\x07 nul\x00 back\x08", "bell nul back"),
        ("10%\r50%\r100%\ndone", "100%\ndone"),
        ("10%\r\r50%\r", "50%\r"),
        ("dos\r\nlines\r\n", "dos\r\nlines\r\n"),
        ("tabs\tand\nlines", "tabs\tand\nlines"),
        ("[0m stays", "[0m stays"),
        ("ends in \x1b", "ends in "),
    ],
)
def test_what_only_a_terminal_understands_is_left_out(raw: str, clean: str) -> None:
    assert strip_terminal_codes(raw) == clean


@pytest.mark.parametrize("flood", ["\x1b[", "\x1b]", "\r", "\x1b[0;", "a\r", "\x1b", "x"])
def test_cleaning_a_million_odd_characters_is_quick(flood: str) -> None:
    assert len(strip_terminal_codes(flood * (1_000_000 // len(flood)))) <= 1_000_000


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm  -rf  /",
        "rm -rf / --verbose",
        "rm -rf /*",
        "sudo rm -fr /",
        ":(){ :|:& };:",
        "mkfs.ext4 /dev/sda1",
        "dd if=/dev/zero of=/dev/sda",
    ],
)
def test_b249_by_default_commands_that_nobody_means_are_denied(command: str) -> None:
    assert BashPolicy().denied_in(command) in DENIED


@pytest.mark.parametrize("command", ["rm -rf /base/build", "rm -rf ./x", "ls /", "echo mkfs"])
def test_ordinary_commands_are_not_denied(command: str) -> None:
    assert BashPolicy().denied_in(command) is None


def test_b249_a_denied_text_of_several_lines_is_found() -> None:
    policy = BashPolicy(denied=("a\n  b",))

    assert policy.denied_in("x; a\n  b") == "a\n  b"
    assert policy.denied_in("a b") is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_output_chars": 0}, "max_output_chars must be 1 or more"),
        ({"head_chars": -1}, "head_chars must be 0 or more"),
        ({"tail_chars": "many"}, "tail_chars must be a whole number"),
        ({"max_output_chars": 100}, "head_chars=20\\)"),
        ({"head_chars": 0, "tail_chars": 0}, "must be between 1 and"),
        ({"denied": "rm"}, "write denied="),
        ({"denied": ("rm", "")}, "must not contain empty"),
        ({"max_timeout": 0}, "max_timeout must be above 0"),
    ],
)
def test_a_policy_that_can_not_work_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        BashPolicy(**settings)


class Timers:
    """Stands in for the event loop: calls when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.cancelled = 0

    def call_later(self, seconds: float, function: Any) -> "Timers":
        assert seconds == INTERVAL_SECONDS
        self.waiting.append(function)
        return self

    def cancel(self) -> None:
        self.cancelled += 1
        self.waiting.clear()

    def pass_interval(self) -> None:
        due, self.waiting = self.waiting, []
        for function in due:
            function()


def progress() -> tuple[OutputProgress, list[str], Timers]:
    told: list[str] = []
    timers = Timers()
    return OutputProgress(told.append, timers.call_later), told, timers


def test_progress_is_told_once_per_interval() -> None:
    note, told, timers = progress()
    note(Channel.STDOUT, "one\n")
    note(Channel.STDERR, "\x1b[31mtwo\x1b[0m\n")
    assert told == []

    timers.pass_interval()
    assert told == ["one\ntwo"]
    timers.pass_interval()
    assert told == ["one\ntwo"]
    note(Channel.STDOUT, "three\n")
    timers.pass_interval()
    assert told == ["one\ntwo", "three"]


def test_progress_keeps_a_line_together_for_one_interval() -> None:
    note, told, timers = progress()
    note(Channel.STDOUT, "one\nGo o")
    timers.pass_interval()
    assert told == ["one"]

    note(Channel.STDOUT, "n? ")
    timers.pass_interval()
    assert told == ["one", "Go on? "]


def test_progress_tells_only_the_end_of_a_flood() -> None:
    note, told, timers = progress()
    for number in range(10_000):
        note(Channel.STDOUT, f"line {number}\n")
    timers.pass_interval()
    note(Channel.STDOUT, "calm\n")
    timers.pass_interval()

    assert len(told[0]) <= MAX_CHARS + 3
    assert told[0].startswith("...")
    assert told[0].endswith("line 9999")
    assert told[1] == "calm"


def test_progress_that_was_closed_tells_nothing_more() -> None:
    note, told, timers = progress()
    note(Channel.STDOUT, "one\n")
    note.close()
    timers.pass_interval()

    assert told == []
    assert timers.cancelled == 1
