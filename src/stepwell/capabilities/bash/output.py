"""A command's result as the model sees it: cleaned, sampled, labelled. Only pure functions."""

import re
import signal

from stepwell.capabilities.bash.policy import BashPolicy
from stepwell.sandbox import Ending, ExecutionPolicy, SandboxResult
from stepwell.tools import ToolFailure

NO_OUTPUT = "(no output)"
ADVICE = (
    "To see the rest, send the output to a file and look at parts of it with grep, sed or tail."
)
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # window titles and links, on one line
    r"|\x1b[ -/]*[0-~]"  # character sets and the rest
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


def plain(text: str) -> str:
    r"""The text without terminal control, which costs tokens and says nothing to a model.

    Of a line that was written over and over, as a progress bar is, the last version stays.

    >>> plain("\x1b[32mok\x1b[0m 10%\r100%\n")
    '100%\n'
    """
    text = _ESCAPES.sub("", text)
    if "\r" not in text:
        return text
    return "\n".join(_last_version(line) for line in text.split("\n"))


def result_of(
    result: SandboxResult, policy: BashPolicy, execution: ExecutionPolicy
) -> str | ToolFailure:
    """The output, or a failure that says how the command ended and what it had said."""
    said = _both_outputs(result, policy, execution.max_output)
    # A pipeline exits with 0 though the kernel ended one of its commands.
    if result.ending is Ending.EXITED and result.exit_code == 0 and not result.out_of_memory:
        return said
    details = {"exit_code": result.exit_code, "ending": result.ending.value}
    return ToolFailure(f"{_how_it_ended(result, execution)}\n{said}", details)


def size_of(amount: int) -> str:
    """Bytes for people.

    >>> size_of(1536 * 1024 * 1024), size_of(64 * 1024 * 1024)
    ('1.5 GiB', '64 MiB')
    """
    gibibytes = amount / 1024**3
    return f"{gibibytes:.3g} GiB" if gibibytes >= 1 else f"{amount / 1024**2:.3g} MiB"


def _both_outputs(result: SandboxResult, policy: BashPolicy, cap: int) -> str:
    stdout = _limited(result.stdout, result.stdout_bytes, policy, cap)
    stderr = _limited(result.stderr, result.stderr_bytes, policy, cap)
    sections = [stdout, f"stderr:\n{stderr}" if stderr else ""]
    return "\n\n".join(section for section in sections if section) or NO_OUTPUT


def _how_it_ended(result: SandboxResult, execution: ExecutionPolicy) -> str:
    match result.ending:
        case Ending.EXITED:
            code = f"exit code {result.exit_code}{_signal_name(result.exit_code)}"
            return code + memory_note(result, execution)
        case Ending.TIMED_OUT:
            return (
                f"timed out after {_seconds(execution.timeout)}; the command and all it started "
                f"were ended{memory_note(result, execution)}. Its output until then:"
            )
        case Ending.IDLE:
            return (
                f"ended after {_seconds(execution.idle_timeout)} without output, with all it "
                "started. Its output until then:"
            )


def memory_note(result: SandboxResult, execution: ExecutionPolicy) -> str:
    """What to add to how a command ended if the kernel ended a process of it for its memory."""
    if not result.out_of_memory:
        return ""
    most = "" if execution.max_memory is None else f" than {size_of(execution.max_memory)}"
    return f"; a process was ended for using more{most} of memory, so the output may be incomplete"


def _limited(text: str, size_in_bytes: int, policy: BashPolicy, cap: int) -> str:
    text = plain(text).rstrip("\n")
    if size_in_bytes > cap:
        return _labelled_tail(text, size_in_bytes, policy, cap)
    if len(text) <= policy.max_output_chars:
        return text
    left_out = len(text) - policy.head_chars - policy.shown_tail
    return "\n".join(
        [
            f"[Too long: the first {policy.head_chars} and the last {policy.shown_tail} "
            "characters are shown]",
            text[: policy.head_chars],
            f"... [{left_out} characters left out] ...",
            text[len(text) - policy.shown_tail :],
            f"[{len(text)} characters were captured. {ADVICE}]",
        ]
    )


def _labelled_tail(text: str, size_in_bytes: int, policy: BashPolicy, cap: int) -> str:
    """What was kept of an output beyond the cap. Its beginning is lost, so there is no head."""
    shown = text[-policy.max_output_chars :]
    return "\n".join(
        [
            f"[Only the end was kept: {size_in_bytes} bytes were written, and the cap is {cap} "
            f"bytes. These are the last {len(shown)} characters]",
            shown,
            f"[{ADVICE}]",
        ]
    )


def _last_version(line: str) -> str:
    visible = line.rstrip("\r")
    ending = "\r" if visible != line else ""  # of a file with such line ends, say
    return visible.rpartition("\r")[2] + ending


def _signal_name(exit_code: int) -> str:
    """Shells report the signal that ended a command as 128 and its number."""
    number = exit_code - 128 if exit_code > 128 else -exit_code
    names = {known.value: known.name for known in signal.Signals}
    return f" ({names[number]})" if number in names else ""


def _seconds(amount: float | None) -> str:
    return "its time" if amount is None else f"{amount:g} seconds"
