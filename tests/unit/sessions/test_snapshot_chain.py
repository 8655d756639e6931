"""When a chain of snapshots begins anew: one rule, whether a run goes on or a state is loaded."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.messages import Message
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.snapshot_chain import LARGEST_WHOLE, SnapshotChain
from stepwell.state import AgentState
from stepwell.testing import FakeClock

Change = Callable[[AgentState], AgentState]
NOW = FakeClock().now()
GROWTH = 4.0
EXECUTION = Execution(
    id="e", tenant_id="t", agent_type="a", definition_hash="", created_at=NOW, updated_at=NOW
)


class Rows:
    """The snapshots of one execution, in memory."""

    def __init__(self) -> None:
        self.all: dict[str, Snapshot] = {}

    async def snapshot(self, id: str) -> Snapshot | None:
        """One of them."""
        return self.all.get(id)

    async def chain(self, snapshot: Snapshot) -> list[str]:
        """The documents up to it."""
        return [it.state_json for it in self._of(snapshot.chain_id)[: snapshot.position + 1]]

    async def is_end_of_chain(self, snapshot: Snapshot) -> bool:
        """Whether none follows it."""
        return len(self._of(snapshot.chain_id)) == snapshot.position + 1

    def _of(self, chain_id: str) -> list[Snapshot]:
        return [it for it in self.all.values() if it.chain_id == chain_id]

    def add(self, snapshot: Snapshot) -> None:
        """A new one."""
        self.all[snapshot.id] = snapshot

    @property
    def size(self) -> int:
        """Of all documents."""
        return sum(len(it.state_json) for it in self.all.values())


async def stored(rows: Any, changes: Sequence[Change], *, loads: bool) -> list[AgentState]:
    """Store what each change leads to, as one run does, or as whoever loads the newest each time;
    the states."""
    chain, states = SnapshotChain(GROWTH), [AgentState.empty()]
    for number, change in enumerate(changes):
        before = states[-1]
        if loads and number:
            chain = SnapshotChain(GROWTH)
            before = await chain.load(rows, f"s{number - 1}")
        states.append(change(before))
        snapshot = chain.next(EXECUTION, states[-1], id=f"s{number}", at=NOW, is_final=False)
        rows.add(snapshot)
        chain.mark_stored(snapshot, states[-1])
    return states[1:]


def saying(text: str) -> Change:
    """One message more."""
    return lambda state: state.with_message(Message.user(text))


def noting(text: str) -> Change:
    """Another note in place of the last."""
    return lambda state: replace(state, metadata={"note": text})


async def loaded(rows: Any, number: int) -> AgentState:
    """The state that a snapshot holds."""
    return await SnapshotChain(GROWTH).load(rows, f"s{number}")


WAYS = pytest.mark.parametrize("loads", [False, True], ids=["in one run", "loaded each time"])


@WAYS
async def test_two_hundred_that_only_add_cost_two_hundred_times_one(loads: bool) -> None:
    rows = Rows()
    states = await stored(rows, [saying("ü" * 200)] * 200, loads=loads)
    whole = len(AgentStateSerializer().to_json(states[-1]).decode())
    assert rows.size < 3 * whole
    assert [it.position for it in rows.all.values()] == list(range(200))
    assert await loaded(rows, 199) == states[-1]


@WAYS
async def test_what_is_written_anew_each_time_begins_a_chain_now_and_then(loads: bool) -> None:
    rows = Rows()
    states = await stored(rows, [noting(f"{n:03}" * 300) for n in range(40)], loads=loads)
    heads = [number for number, it in enumerate(rows.all.values()) if it.is_whole]
    lengths = {after - before for before, after in pairwise(heads)}
    assert len(heads) > 4
    assert max(lengths) - min(lengths) <= 1
    for number, state in enumerate(states):
        assert await loaded(rows, number) == state


async def test_both_ways_store_as_much() -> None:
    changes = [noting(f"{n:03}" * 300) if n % 3 else saying("x" * 90) for n in range(200)]
    in_one_run, each_time = Rows(), Rows()
    await stored(in_one_run, changes, loads=False)
    await stored(each_time, changes, loads=True)
    for rows in (in_one_run, each_time):
        assert 1 < sum(it.is_whole for it in rows.all.values()) < 40
    assert each_time.size == pytest.approx(in_one_run.size, rel=0.1)


async def test_ends_are_whole_as_long_as_whole_ones_at_most_double_what_is_stored() -> None:
    rows, chain, state = Rows(), SnapshotChain(GROWTH), AgentState.empty()
    for number in range(200):
        state = state.with_message(Message.user("ü" * 200))
        ends = number % 2 == 1
        snapshot = chain.next(EXECUTION, state, id=f"s{number}", at=NOW, is_final=ends)
        rows.add(snapshot)
        chain.mark_stored(snapshot, state)
    whole = [number for number, it in enumerate(rows.all.values()) if it.is_whole]
    assert whole[:2] == [0, 1]
    assert 5 < len(whole) < 15
    assert rows.size < 5 * len(AgentStateSerializer().to_json(state).decode())
    assert await loaded(rows, 199) == state


async def test_a_large_state_is_not_stored_whole_again() -> None:
    chain, state = SnapshotChain(GROWTH), AgentState.empty().with_message(Message.user("a"))
    chain.mark_stored(chain.next(EXECUTION, state, id="s0", at=NOW, is_final=False), state)
    state = state.with_message(Message.user("b" * LARGEST_WHOLE))
    assert not chain.next(EXECUTION, state, id="s1", at=NOW, is_final=True).is_whole


async def test_a_chain_that_was_cut_meanwhile_is_noticed() -> None:
    rows: Any = Rows()
    states = await stored(rows, [saying("one"), saying("two"), saying("three")], loads=False)
    chain = SnapshotChain(GROWTH)
    assert await chain.has_its_place(rows)
    await chain.load(rows, "s2")
    assert await chain.has_its_place(rows)
    whole = AgentStateSerializer().to_json(states[2]).decode()
    rows.add(replace(rows.all["s2"], chain_id="s2", position=0, state_json=whole))
    assert not await chain.has_its_place(rows)
    rows.all.clear()
    assert not await chain.has_its_place(rows)
