"""Formats a command's result for the model: cleaned, truncated, labelled. Pure functions."""

import re
import signal

from stepwell.capabilities.bash.policy import BashPolicy
from stepwell.sandbox import Ending, ExecutionPolicy, SandboxResult
from stepwell.text import join_ends
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


def strip_terminal_codes(text: str) -> str:
    r"""Remove terminal control codes, which cost tokens and mean nothing to a model.

    Of a line that was overwritten, such as a progress bar, the last version stays.

    >>> strip_terminal_codes("\x1b[32mok\x1b[0m 10%\r100%\n")
    '100%\n'
    """
    text = _ESCAPES.sub("", text)
    if "\r" not in text:
        return text
    return "\n".join(_resolve_carriage_returns(line) for line in text.split("\n"))


def format_result(
    result: SandboxResult, policy: BashPolicy, execution: ExecutionPolicy
) -> str | ToolFailure:
    """Return the output, or a failure that says how the command ended, with its output."""
    output = _join_outputs(result, policy, execution.max_output)
    # A pipeline can exit with 0 although the kernel killed one of its commands.
    if result.ending is Ending.EXITED and result.exit_code == 0 and not result.out_of_memory:
        return output
    details = {"exit_code": result.exit_code, "ending": result.ending.value}
    return ToolFailure(f"{_describe_ending(result, execution)}\n{output}", details)


def format_size(amount: int) -> str:
    """Format a number of bytes.

    >>> format_size(1536 * 1024 * 1024), format_size(64 * 1024 * 1024)
    ('1.5 GiB', '64 MiB')
    """
    gibibytes = amount / 1024**3
    return f"{gibibytes:.3g} GiB" if gibibytes >= 1 else f"{amount / 1024**2:.3g} MiB"


def _join_outputs(result: SandboxResult, policy: BashPolicy, cap: int) -> str:
    stdout = _truncate(result.stdout, result.stdout_bytes, policy, cap)
    stderr = _truncate(result.stderr, result.stderr_bytes, policy, cap)
    sections = [stdout, f"stderr:\n{stderr}" if stderr else ""]
    return "\n\n".join(section for section in sections if section) or NO_OUTPUT


def _describe_ending(result: SandboxResult, execution: ExecutionPolicy) -> str:
    match result.ending:
        case Ending.EXITED:
            code = f"exit code {result.exit_code}{_signal_name(result.exit_code)}"
            return code + memory_note(result, execution)
        case Ending.TIMED_OUT:
            return (
                f"timed out after {_format_seconds(execution.timeout)}; the command and its "
                f"processes were killed{memory_note(result, execution)}. Output so far:"
            )
        case Ending.IDLE:
            return (
                f"killed after {_format_seconds(execution.idle_timeout)} without output, with its "
                "processes. Output so far:"
            )


def memory_note(result: SandboxResult, execution: ExecutionPolicy) -> str:
    """Return a note if the kernel killed a process of the command for its memory use, else ''."""
    if not result.out_of_memory:
        return ""
    limit = "" if execution.max_memory is None else f" than {format_size(execution.max_memory)}"
    return (
        f"; a process was killed for using more{limit} of memory, so the output may be incomplete"
    )


def _truncate(text: str, size_in_bytes: int, policy: BashPolicy, cap: int) -> str:
    text = strip_terminal_codes(text).rstrip("\n")
    if size_in_bytes > cap:
        return _labelled_tail(text, size_in_bytes, policy, cap)
    if len(text) <= policy.max_output_chars:
        return text
    return "\n".join(
        [
            f"[Truncated: the first {policy.head_chars} and the last {policy.shown_tail} "
            "characters are shown]",
            join_ends(text, policy.head_chars, policy.shown_tail),
            f"[{len(text)} characters were captured. {ADVICE}]",
        ]
    )


def _labelled_tail(text: str, size_in_bytes: int, policy: BashPolicy, cap: int) -> str:
    """Format an output beyond the cap: its start was not kept, so only the tail is shown."""
    shown = text[-policy.max_output_chars :]
    return "\n".join(
        [
            f"[Only the end was kept: {size_in_bytes} bytes were written, and the cap is {cap} "
            f"bytes. The last {len(shown)} characters are shown]",
            shown,
            f"[{ADVICE}]",
        ]
    )


def _resolve_carriage_returns(line: str) -> str:
    visible = line.rstrip("\r")
    ending = "\r" if visible != line else ""  # keep CRLF line endings
    return visible.rpartition("\r")[2] + ending


def _signal_name(exit_code: int) -> str:
    """Return the name of the signal that ended the command; shells report 128 + its number."""
    number = exit_code - 128 if exit_code > 128 else -exit_code
    names = {known.value: known.name for known in signal.Signals}
    return f" ({names[number]})" if number in names else ""


def _format_seconds(amount: float | None) -> str:
    return "its timeout" if amount is None else f"{amount:g} seconds"
