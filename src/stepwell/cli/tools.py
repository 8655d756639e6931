"""``stepwell tools``: what the model of an agent can call."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import (
    config_option,
    configuration,
    json_option,
    model_option,
)

if TYPE_CHECKING:
    from stepwell.cli.terminal import Style
    from stepwell.sessions.directory import RegisteredAgent
    from stepwell.tools import Tool, Tools


@click.command("tools")
@click.argument("names", nargs=-1, metavar="[APP] [TOOL]")
@click.option("--agent", help="Which agent of the app; otherwise all.")
@model_option
@config_option
@json_option
def command(
    names: tuple[str, ...],
    agent: str | None,
    model: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """The tools of agents: what may be done again after a crash, and which need approval.

    APP is module:name, otherwise the configured app or the built-in agent. With TOOL its JSON
    schema is shown, as the model gets it.

    \b
    stepwell tools my_module:app
    stepwell tools my_module:app look_up
    """
    from stepwell.app.loading import load_app
    from stepwell.cli.starting import unsigned
    from stepwell.cli.terminal import document, out_style

    app, tool = split_names(names)
    application = load_app(unsigned(configuration(config, app=app, model=model)))
    chosen = application.agents.names if agent is None else (agent,)
    agents = [application.agents.get(name) for name in chosen]
    if tool is not None:
        _show_one(agents, tool, as_json=as_json)
    elif as_json:
        told = {agent.name: [_as_data(agent, each) for each in _tools(agent)] for agent in agents}
        click.echo(document(told))
    else:
        for agent_shown in agents:
            if len(agents) > 1:
                click.echo(out_style().bold(agent_shown.name))
            for line in tool_lines(agent_shown, out_style()):
                click.echo(line)


def split_names(names: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The app, which has a colon in it, and the tool, which has none.

    >>> split_names(("shop:app", "look_up")), split_names(("look_up",)), split_names(())
    (('shop:app', 'look_up'), (None, 'look_up'), (None, None))
    """
    apps = [name for name in names if ":" in name]
    tools = [name for name in names if ":" not in name]
    if len(apps) > 1 or len(tools) > 1:
        raise click.UsageError("give one APP as module:name and one TOOL at most.")
    return (apps[0] if apps else None), (tools[0] if tools else None)


def _tools(agent: "RegisteredAgent") -> "Tools":
    """Those of the agent, or of its driver where that has its own."""
    from stepwell.tools import Tools

    plan = agent.agent.plan
    executor = getattr(plan.driver, "executor", None)
    return Tools(plan.tools) if plan.tools or executor is None else executor.tools


def approval(agent: "RegisteredAgent", tool: "Tool") -> str:
    """Whether calls of a tool wait for a person: ``yes``, ``no``, or ``some`` where a function of
    the call decides."""
    from stepwell.capabilities.approvals import UseApprovals

    said = "no"
    for hook in agent.agent.plan.hooks:
        owner = getattr(hook.function, "__self__", None)
        if not isinstance(owner, UseApprovals):
            continue
        asks = owner.asks_for(tool.schema.name)
        if asks:
            return "yes"
        said = "some" if asks is None else said
    return said


def _as_data(agent: "RegisteredAgent", tool: "Tool") -> dict[str, Any]:
    schema = tool.schema
    return {
        "name": schema.name,
        "description": schema.description,
        "effect": tool.effect.value,
        "needs_approval": approval(agent, tool),
        "timeout": tool.timeout,
        "parallel": tool.parallel,
        "parameters": schema.parameters,
    }


def tool_lines(agent: "RegisteredAgent", style: "Style") -> Iterator[str]:
    """A line for each tool."""
    from stepwell.cli.terminal import one_line, table

    tools = tuple(_tools(agent))
    if not tools:
        yield "(no tools)"
        return
    rows = [
        [
            tool.schema.name,
            tool.effect.value,
            {"yes": "approval", "some": "approval for some calls"}.get(approval(agent, tool), "-"),
            one_line(tool.schema.description, 90),
        ]
        for tool in tools
    ]
    for line in table(rows).splitlines():
        name, _, rest = line.partition(" ")
        yield f"{style.bold(name)} {rest}"


def _show_one(agents: "list[RegisteredAgent]", name: str, *, as_json: bool) -> None:
    from stepwell.cli.terminal import document
    from stepwell.errors import ToolNotFoundError

    for agent in agents:
        tool = _tools(agent).find(name)
        if tool is not None:
            told = _as_data(agent, tool)
            click.echo(document(told if as_json else {**told, "agent": agent.name}))
            return
    known = sorted({each for agent in agents for each in _tools(agent).names})
    raise click.UsageError(
        f"{ToolNotFoundError(name, known)} An application is written module:name."
    )
