"""The file of a cassette: read strictly, written whole or not at all."""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from msgspec import ValidationError, convert

from stepwell.errors import ConfigurationError, StepwellError
from stepwell.testing.cassette_turn import Data, RecordedTurn

VERSION = 1

# Two models, or two event loops in two threads, may write to one file.
_writing = threading.Lock()


def recorded_turns(path: Path) -> tuple[RecordedTurn, ...]:
    """The turns of a cassette; none if there is no file yet."""
    try:
        return tuple([_turn(data, f"turns[{i}]") for i, data in enumerate(_turns_data(path))])
    except _InvalidTurn as invalid:
        raise _unreadable(path, str(invalid)) from invalid


def append_turn(path: Path, turn: Data, *, overwrite: bool) -> None:
    """Write the cassette with one more turn, after what the file contains, or overwrite it."""
    try:
        _turn(turn, "turn")
    except _InvalidTurn as invalid:
        raise StepwellError(f"the turn can't be recorded in {path}: {invalid}") from invalid
    with _writing:
        turns = [] if overwrite else _turns_data(path)
        _write(path, {"version": VERSION, "turns": [*turns, turn]})


class _InvalidTurn(Exception):
    """Says what is wrong, and where."""


def _turns_data(path: Path) -> list[Any]:
    try:
        content = json.loads(path.read_bytes().decode(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(content, dict) or "version" not in content:
        raise _unreadable(path, 'it is not {"version": ..., "turns": [...]}')
    held = cast("Data", content)
    if held["version"] != VERSION:
        known = f"it has version {held['version']!r}, and this Stepwell knows version {VERSION}"
        raise _unreadable(path, known)
    if set(held) != {"version", "turns"} or not isinstance(held["turns"], list):
        raise _unreadable(path, f'it has {", ".join(sorted(held))} instead of "version", "turns"')
    return cast("list[Any]", held["turns"])


def _turn(data: Any, place: str) -> RecordedTurn:
    try:
        turn = convert(data, RecordedTurn)
    except ValidationError as error:
        text = str(error)
        text = text.replace("`$", f"`{place}") if "`$" in text else f"{text} - at `{place}`"
        raise _InvalidTurn(text) from error
    if (turn.response is None) == (turn.error is None):
        raise _InvalidTurn(f"`{place}` needs a response or an error, and not both")
    return turn


def _write(path: Path, content: Data) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, which UTF-8 does not have, becomes the escape that JSON has.
        beside.write_bytes(f"{text}\n".encode("utf-8", "backslashreplace"))
        os.replace(beside, path)
    except OSError as error:
        raise StepwellError(f"cassette {path} can't be written: {error}") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unreadable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"cassette {path} can't be read: {why}. Correct it, or delete it and record it again."
    )
