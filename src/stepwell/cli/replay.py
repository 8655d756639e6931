"""``stepwell replay``: compare a stored execution with the decisions of the current agent."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.options import configuration, database_options, model_option

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp
    from stepwell.app.config import Config
    from stepwell.replay.replay import Replay
    from stepwell.sessions.ports import Store


@click.command("replay")
@click.argument("execution", required=False)
@click.argument("app", required=False)
@model_option
@database_options
def command(
    execution: str | None,
    app: str | None,
    model: str | None,
    db: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Replay a stored execution without its model and tools, and compare every decision.

    EXECUTION is an id or a prefix of one; the default is the newest execution. The id of a session
    stands for its newest execution. The criteria, hooks and limits of the agent in APP run; model
    responses, tool results and times are the stored ones. The exit code is 0 if all decisions are
    the same, 1 if one differs, 5 if APP has no such agent. Nothing is stored.

    \b
    stepwell replay my_module:app              the newest
    stepwell replay 01a1e4ea my_module:app     after a change of a limit or a guard
    """
    from stepwell.cli.database import read_database
    from stepwell.cli.process import with_random_secret
    from stepwell.cli.streams import while_read
    from stepwell.cli.terminal import document

    if app is None and execution is not None and ":" in execution:  # an id has no colon
        execution, app = None, execution
    application = _application(
        with_random_secret(configuration(config, app=app, model=model, db=db))
    )

    async def work(store: "Store") -> "Replay":
        from stepwell.cli.application import agent_that_ran
        from stepwell.cli.database import find_execution
        from stepwell.replay.replay import replay_execution

        found = await find_execution(store, execution)
        agent_that_ran(application, found.agent_type)
        return await replay_execution(store, application.agents, found.id)

    replay = read_database(db or application.config.db, work)
    with while_read():
        if as_json:
            click.echo(document(_as_data(replay)))
        else:
            for line in _lines(replay):
                click.echo(line)
    sys.exit(ExitCode.COMPLETED if replay.is_same else ExitCode.FAILED)


def _application(config: "Config") -> "AgentApp":
    """Load the application. The built-in agent's model is never called, so it needs no key."""
    from msgspec.structs import replace

    from stepwell.agent import Agent
    from stepwell.app.agent_app import AgentApp
    from stepwell.app.app_loader import load_app
    from stepwell.app.default_agent import NAME, default_agent
    from stepwell.models import ModelPresets

    if config.app is not None or config.model is None:
        return load_app(config)
    provider, _, name = config.model.partition(":")
    known = ModelPresets().providers.get(provider)
    if known is None:
        return load_app(config)  # reports what is wrong
    model = known.model(name or None, api_key="not asked")
    plan = replace(default_agent(None).build().plan, model=model)
    return AgentApp({NAME: Agent.from_plan(plan)}).use_config(config)


def _as_data(replay: "Replay") -> dict[str, Any]:
    return {
        "execution_id": replay.execution_id,
        "agent_type": replay.agent_type,
        "is_same": replay.is_same,
        "definition_changed": replay.definition_changed,
        "steps": [
            {
                "number": step.number,
                "is_same": not step.differences,
                "differences": list(step.differences),
                "was": step.was.to_dict(),
                "now": step.now.to_dict(),
            }
            for step in replay.steps
        ],
        "differences": list(replay.differences),
        "notes": list(replay.notes),
    }


def _lines(replay: "Replay") -> Iterator[str]:
    from stepwell.cli.step_lines import outcome_line
    from stepwell.cli.terminal import out_style, printable

    style = out_style()
    yield f"{style.bold(replay.execution_id)} of {replay.agent_type}, replayed"
    for step in replay.steps:
        mark = style.bad("differs") if step.differences else style.good("same   ")
        yield f"{step.number:>3}  {mark}  {outcome_line(step.now.to_dict(), style)}"
        yield from (f"       {printable(difference)}" for difference in step.differences)
    yield from (style.bad(printable(difference)) for difference in replay.differences)
    yield from (style.dim(f"note: {printable(note)}") for note in replay.notes)
    if replay.definition_changed:
        yield style.warm("The agent's definition has changed since this execution.")
    yield "All decisions are the same." if replay.is_same else style.bad("Decisions differ.")
