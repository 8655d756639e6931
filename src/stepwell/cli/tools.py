"""``stepwell tools``: list the tools of an agent as its model sees them."""

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
@click.option("--agent", help="Agent of the app.  [default: all]")
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
    """List tools with their effect (whether a call may be repeated after a crash) and approval.

    APP is module:name; the default is the configured app or the built-in agent. With TOOL, print
    its JSON schema as the model receives it.

    \b
    stepwell tools my_module:app
    stepwell tools my_module:app look_up
    """
    from stepwell.app.app_loader import load_app
    from stepwell.cli.process import with_random_secret
    from stepwell.cli.terminal import document, out_style

    app, tool = split_names(names)
    application = load_app(with_random_secret(configuration(config, app=app, model=model)))
    chosen = application.agents.names if agent is None else (agent,)
    agents = [application.agents.get(name) for name in chosen]
    if tool is not None:
        _show_one(agents, tool, as_json=as_json)
    elif as_json:
        data = {agent.name: [_as_data(agent, each) for each in _tools(agent)] for agent in agents}
        click.echo(document(data))
    else:
        for agent_shown in agents:
            if len(agents) > 1:
                click.echo(out_style().bold(agent_shown.name))
            for line in tool_lines(agent_shown, out_style()):
                click.echo(line)


def split_names(names: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Tell the app, which has a colon, from the tool, which has none.

    >>> split_names(("shop:app", "look_up")), split_names(("look_up",)), split_names(())
    (('shop:app', 'look_up'), (None, 'look_up'), (None, None))
    """
    apps = [name for name in names if ":" in name]
    tools = [name for name in names if ":" not in name]
    if len(apps) > 1 or len(tools) > 1:
        raise click.UsageError("give at most one APP as module:name and one TOOL.")
    return (apps[0] if apps else None), (tools[0] if tools else None)


def _tools(agent: "RegisteredAgent") -> "Tools":
    """Return the tools of the agent, or of a driver that has its own."""
    from stepwell.tools import Tools

    plan = agent.agent.plan
    executor = getattr(plan.driver, "executor", None)
    return Tools(plan.tools) if plan.tools or executor is None else executor.tools


def approval(agent: "RegisteredAgent", tool: "Tool") -> str:
    """Whether calls of a tool need approval: ``yes``, ``no``, or ``some`` if a function decides."""
    from stepwell.capabilities.approvals import UseApprovals

    needed = "no"
    for hook in agent.agent.plan.hooks:
        owner = getattr(hook.function, "__self__", None)
        if not isinstance(owner, UseApprovals):
            continue
        asks = owner.asks_for(tool.schema.name)
        if asks:
            return "yes"
        needed = "some" if asks is None else needed
    return needed


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
    """Yield a line for each tool."""
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
            data = _as_data(agent, tool)
            click.echo(document(data if as_json else {**data, "agent": agent.name}))
            return
    known = sorted({each for agent in agents for each in _tools(agent).names})
    raise click.UsageError(f"{ToolNotFoundError(name, known)} Write an application as module:name.")
