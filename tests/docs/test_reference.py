"""Tables of the reference that could go stale are compared with the code."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module

import click
import pytest
from msgspec import structs

from stepwell import AgentStatus, AtLimit, ContinuationDecision, HookTrigger, StopReason
from stepwell.app import ExecutionStatus, SessionStatus
from stepwell.broadcasting import BroadcastStatus, EnvelopeType
from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.main import COMMANDS
from stepwell.criteria import ErrorHandling
from stepwell.errors import ErrorType, ModelErrorKind
from stepwell.journal.envelope import PAYLOADS, Payload
from stepwell.server.policy.table import CHANNELS, POLICIES, Needs
from stepwell.sessions.records import EventType
from stepwell.state import PendingKind, StepType, ToolOutcome
from stepwell.tools import ToolEffect
from tests.docs.pages import DOCS, ROOT, prose, rows, words

STOPS = DOCS / "reference/stop-reasons.md"
ENVELOPES = DOCS / "reference/envelopes.md"
ROUTES = DOCS / "reference/http-api.md"
COMMAND_LINE = DOCS / "reference/command-line.md"
TROUBLE = DOCS / "troubleshooting.md"
VOCABULARIES = (
    *(AgentStatus, ExecutionStatus, SessionStatus, BroadcastStatus, ContinuationDecision),
    *(StepType, ToolOutcome, ErrorType, ErrorHandling, AtLimit, ToolEffect, PendingKind),
    ModelErrorKind,
)
WHO = {
    Needs.PUBLIC: "everyone",
    Needs.SIGNED_IN: "signed in",
    Needs.OWNER: "owner",
    Needs.OPERATOR: "administrators of",
}


def test_every_stop_reason_is_told_in_order_with_its_status() -> None:
    told = [(words(row[0]), words(row[1])) for row in rows(STOPS) if len(row) == 4]

    assert told == [([reason], [AgentStatus.after(reason)]) for reason in StopReason]


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda vocabulary: vocabulary.__name__)
def test_a_line_has_every_word_and_no_other(vocabulary: type[StrEnum]) -> None:
    told = [set(words(row[-1])) for row in rows(STOPS) if len(row) == 2]

    assert {str(word) for word in vocabulary} in told


def test_every_envelope_is_told_with_its_payload() -> None:
    told = {words(row[0])[0]: words(row[1]) for row in rows(ENVELOPES) if "agent." in row[0]}
    shared = {field.name for field in structs.fields(Payload)}
    own = {
        str(type): [f.name for f in structs.fields(payload) if f.name not in shared]
        for type, payload in PAYLOADS.items()
    }

    assert told == own
    assert set(own) == {str(type) for type in EnvelopeType}
    assert [name for name in shared if f"`{name}`" not in prose(ENVELOPES)] == []


def test_every_event_of_the_server_is_told() -> None:
    told = [word for row in rows(ENVELOPES) for word in words(row[0])]

    assert [type for type in EventType if type not in told] == []


def test_every_route_is_told_with_who_may_use_it() -> None:
    cells = [row for row in rows(ROUTES) if len(row) == 4]
    told = {words(route)[0]: (who, words(action)[0]) for route, _, who, action in cells}
    wanted = {f"{method} {path.replace(':path', '')}": p for (method, path), p in POLICIES.items()}

    assert set(told) == set(wanted)
    for route, policy in wanted.items():
        who, action = told[route]
        assert who.startswith(WHO[policy.needs]), route
        assert action == policy.action, route


def test_every_channel_is_told() -> None:
    assert [channel for channel in CHANNELS if f"`{channel}`" not in prose(ROUTES)] == []


def test_every_command_is_told_in_the_order_of_the_help() -> None:
    told = [words(row[0])[0].split()[0] for row in rows(COMMAND_LINE) if row[0].startswith("`")]

    assert [command for command in told if not command.startswith("--")] == list(COMMANDS)


def options_of(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (name for name in parameter.opts if name.startswith("--"))
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from options_of(each)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_told(name: str) -> None:
    command = import_module(f"stepwell.cli.{name}").command
    page = prose(COMMAND_LINE)
    shared = page.partition("## Common options")[2].partition("\n## ")[0]
    own = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]

    assert [each for each in options_of(command) if each not in f"{shared} {own}"] == []


def test_every_exit_code_is_told() -> None:
    told = [int(row[0]) for row in rows(COMMAND_LINE) if row[0].isdigit()]

    assert told == [code.value for code in ExitCode]


def test_every_moment_of_a_hook_is_told() -> None:
    told = [word for row in rows(DOCS / "howto/hooks.md") for word in words(row[0])]

    assert sorted(told) == sorted(HookTrigger)


def literals() -> Iterator[str]:
    """Every text of the source, with ``...`` in place of what is filled in."""
    for path in (ROOT / "src/stepwell").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "..." for part in node.values
                )


def is_said(quoted: str, said: str) -> bool:
    """Whether the parts between dots stand in that text, in order."""
    place = 0
    for part in quoted.strip("'").split("..."):
        place = said.find(part.strip("' "), place)
        if place < 0:
            return False
    return True


def test_texts_of_errors_in_the_troubleshooting_are_those_of_the_code() -> None:
    said = list(literals())
    quoted = [word for row in rows(TROUBLE) for word in words(row[0]) if " " in word]

    assert len(quoted) > 12
    assert [text for text in quoted if not any(is_said(text, each) for each in said)] == []
