"""The cost of storing a state, as a ratio to the least a program could do with the conversation.

An agent makes 200 steps, each with a tool call whose result is 1 KB. One side dumps and loads the
conversation as plain dicts with ``json``; the other dumps and loads the whole state: messages,
steps, every vote of every decision, times, usage, with checksum. Rounds of the two are interleaved;
CPU time; medians. Then 1,000 steps as increments: what writing a late one costs against an early
one, and how their sum compares with one whole document.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

from stepwell import Agent, AgentState, tool
from stepwell.serialization import AgentStateSerializer
from stepwell.testing import ScriptedModel, call

RESULT = 1024
SERIALIZER = AgentStateSerializer()


@tool
async def look(row: int) -> str:
    """Look a row up."""
    return f"row {row}: ".ljust(RESULT, "x")


async def path(steps: int) -> list[AgentState]:
    """The states of a run with that many steps."""
    turns = [call("look", row=row) for row in range(steps - 1)]
    agent = Agent(
        ScriptedModel([*turns, "done"]),
        tools=[look],
        max_steps=steps,
        max_tokens=None,
        timeout=None,
    )
    first = agent.new_state("Go.")
    return [first, *[state async for state in agent.iterator(first)]]


def plain(state: AgentState) -> list[dict[str, object]]:
    """The conversation as a hand-written loop would keep it: in the shape of chat completions."""
    conversation: list[dict[str, object]] = []
    for message in state.messages:
        told: dict[str, object] = {"role": message.role.value, "content": message.text}
        if message.tool_calls:
            told["tool_calls"] = [
                {
                    "id": made.id,
                    "type": "function",
                    "function": {"name": made.name, "arguments": json.dumps(dict(made.arguments))},
                }
                for made in message.tool_calls
            ]
        if message.tool_result is not None:
            told["tool_call_id"] = message.tool_result.call_id
        conversation.append(told)
    return conversation


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one go."""
    started = time.process_time_ns()
    work()
    return (time.process_time_ns() - started) / 1e9


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> float:
    """Medians of interleaved rounds."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    return statistics.median(p[0] for p in pairs) / statistics.median(p[1] for p in pairs)


def growth(states: list[AgentState], rounds: int) -> float:
    """Writing step 1,000 against writing step 10, each with the ten steps around it."""
    steps = list(pairwise(states))

    def written(around: int) -> Callable[[], object]:
        near = steps[around - 5 : around + 5] * 5
        return lambda: [SERIALIZER.increment_to_json(one, other) for one, other in near]

    return ratio(written(len(steps) - 6), written(10), rounds)


def measured(rounds: int) -> dict[str, float]:
    """All figures."""
    state = asyncio.run(path(200))[-1]
    conversation = plain(state)
    document, text = SERIALIZER.to_json(state), json.dumps(conversation)
    if SERIALIZER.from_json(document) != state or json.loads(text) != conversation:
        raise AssertionError("what was stored did not come back")
    states = asyncio.run(path(1000))
    increments = [SERIALIZER.increment_to_json(one, other) for one, other in pairwise(states)]
    chain = [SERIALIZER.to_json(states[0]), *increments]
    whole = SERIALIZER.to_json(states[-1])
    if SERIALIZER.from_increments(chain[0], chain[1:]) != states[-1]:
        raise AssertionError("the increments did not lead to the last state")
    return {
        "dump_ratio_200": ratio(
            lambda: SERIALIZER.to_json(state), lambda: json.dumps(conversation), rounds
        ),
        "load_ratio_200": ratio(
            lambda: SERIALIZER.from_json(document), lambda: json.loads(text), rounds
        ),
        "bytes_ratio_200": len(document) / len(text),
        "increment_growth_1000_over_10": growth(states, rounds),
        "increments_over_full": sum(map(len, chain)) / len(whole),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench state", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="interleaved rounds (100)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    figures = measured(options.rounds)
    for name, value in figures.items():
        print(f"{name:32} {value:8.2f}")
    if options.json:
        print(json.dumps(figures))
    return 0
