"""An application whose every part notes who it runs for, beside who the message says it is from.

Run as a program, with a database and a file for the notes, it is a worker process. The notes are
lines in that file, so that a killed process loses none.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from stepwell import Agent, ToolContext, tool
from stepwell.app import AgentApp
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.continuation import ContinuationDecision
from stepwell.criteria import ContinuationCriteria
from stepwell.hooks import ALL_TRIGGERS, HookContext, make_hook
from stepwell.messages import ToolCall
from stepwell.run_context import Principal, RunContext
from stepwell.sessions.settings import SessionSettings
from stepwell.specs import AgentRegistry, AgentSpec
from stepwell.state import AgentState
from stepwell.testing import ScriptedModel, call

LEASE_SECONDS = 4.0


def name_of(who: Principal | None) -> str:
    """The name that messages use for a principal."""
    return "nobody" if who is None else f"{who.tenant_id}/{who.user_id}/{','.join(who.roles)}"


class Witness:
    """Notes who each part of a run saw."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, place: str, said: str, seen: str) -> None:
        """Append one line."""
        line = json.dumps({"place": place, "said": said, "seen": seen, "pid": os.getpid()})
        with self._file.open("a") as file:
            file.write(line + "\n")

    def note_state(self, place: str, state: AgentState) -> None:
        """Note the principal of a state beside who its newest user message is from."""
        said = [it.text for it in state.messages if it.is_user()][-1]
        self.note(place, said.split()[0], name_of(state.context.principal))

    @property
    def notes(self) -> list[dict[str, Any]]:
        """All lines so far."""
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines()]


def witness_agent(witness: Witness) -> Agent:
    """An agent that does what the newest message says: its first word is who it is from."""

    @tool
    def whoami(context: ToolContext) -> str:
        """Say who asks."""
        witness.note_state("tool", context.state)
        return name_of(context.principal)

    @tool(effect="idempotent")
    async def linger(context: ToolContext) -> str:
        """Wait for the kill in the first attempt; answer in the next."""
        witness.note_state("linger", context.state)
        attempts = {it["pid"] for it in witness.notes if it["place"] == "linger"}
        if len(attempts) == 1:
            await asyncio.sleep(600)
        return name_of(context.principal)

    def hook(context: HookContext) -> None:
        witness.note_state(f"hook {context.trigger}", context.state)

    def vote(state: AgentState) -> ContinuationDecision:
        witness.note_state("criterion", state)
        return ContinuationDecision.ALLOW

    def rule(asked: ToolCall, context: RunContext[Any]) -> bool:
        said = asked.arguments.get("said", "")
        witness.note("rule", said or name_of(context.principal), name_of(context.principal))
        return asked.name == "approved"

    @tool
    def approved(said: str, context: ToolContext) -> str:
        """Run after an approval."""
        witness.note("approved tool", said, name_of(context.principal))
        return name_of(context.principal)

    def prompt(context: RunContext[Any]) -> str:
        return f"You serve {name_of(context.principal)}."

    def turn(request: Any) -> Any:
        last = request.messages[-1]
        said = [it.text for it in request.messages if it.is_user()][-1]
        who, _, wish = said.partition(" ")
        prompts = [it.text for it in request.context.messages]
        if prompts and prompts[-1].startswith("You serve"):
            witness.note("prompt", f"You serve {who}.", prompts[-1])
        if last.is_tool():
            return last.text
        if wish == "approve":
            return call("approved", said=who)
        if wish == "delegate":
            return call("spawn_subagent", subagent="clerk", prompt=f"{who} whoami")
        return call("linger" if wish == "linger" else "whoami")

    clerk = AgentSpec(name="clerk", description="Helps.", system_prompt="Help.")
    return Agent(
        ScriptedModel(turn),
        tools=[whoami, linger, approved],
        capabilities=[UseApprovals(when=rule), UseSubagents(AgentRegistry([clerk]))],
        system_prompt=prompt,
        hooks=[make_hook(ALL_TRIGGERS, hook)],
        criteria=[ContinuationCriteria.when(vote)],
    )


def witness_app(db: str, file: Path, *, worker: bool) -> AgentApp:
    """The application, with a worker in this process or without."""
    settings = SessionSettings(lease_seconds=LEASE_SECONDS, heartbeat_seconds=1.0)
    return AgentApp(
        {"witness": witness_agent(Witness(file))}, db=db, settings=settings, worker=worker
    )


async def _work(db: str, file: str) -> None:
    async with witness_app(db, Path(file), worker=True).running():
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
