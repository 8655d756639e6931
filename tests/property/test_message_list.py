"""Whatever gets lost, doubled or out of order: after reconciling, a client shows what a fresh one
shows, and before that what it received, whichever way it came."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.broadcasting.config import BroadcastConfig
from tests.examples import examples
from tests.message_list import (
    MessageList,
    empty_list,
    from_history,
    messages,
    missing,
    needs_history,
    newest,
    received,
    reconciled,
    said,
    status,
)
from tests.property.live_runs import Json, Session, Turn, session_of, sessions

thorough = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)
TERMINAL = {"completed", "failed", "cancelled", "stopped"}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def all_of(envelopes: list[Json], list: MessageList | None = None) -> MessageList:
    list = empty_list() if list is None else list
    for envelope in envelopes:
        list = received(list, envelope)
    return list


def seen(list: MessageList) -> tuple[Any, ...]:
    return messages(list), status(list), missing(list), newest(list), needs_history(list)


def in_one_piece(shown: list[Json]) -> list[tuple[Any, ...]]:
    """What live and stored messages have in common: not the ids of texts, not the subagents, and
    not the order of the calls of one response, some of which are told of before others."""
    told: list[tuple[Any, ...]] = []
    for message in shown:
        if message["role"] == "tool":
            names = ("role", "id", "name", "summary", "error", "state")
            told.append((*(message[name] for name in names), message["content"]))
        elif message["role"] != "status":
            told.append((message["role"], message["content"]))
    return told


def by_response(told: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    groups: list[list[tuple[Any, ...]]] = [[]]
    for message in told:
        if message[0] != "tool":
            groups.append([message])
        else:
            groups[-1].append(message)
    return [sorted(group) for group in groups]


@thorough
@given(runs=sessions, data=st.data())
def test_after_loss_doubling_and_reorder_reconciling_gives_what_a_fresh_client_shows(
    runs: list[list[Turn]], data: st.DataObject
) -> None:
    session = session_of(runs)
    came = data.draw(st.lists(st.sampled_from(session.envelopes), max_size=60))
    late = data.draw(st.lists(st.sampled_from(session.envelopes), max_size=10))
    list = empty_list()
    for number, text in enumerate(session.said):
        list = said(list, text, f"typed-{number}")
    list = all_of(came, list)
    point = newest(list)

    list = reconciled(list, session.stored)
    fresh = from_history(session.stored)

    assert messages(list) == messages(fresh)
    late = [envelope for envelope in late if envelope["seq"] <= point]
    assert messages(all_of(late, list)) == messages(fresh)
    assert all_of(late, list).size == 0


@thorough
@given(runs=sessions, data=st.data())
def test_only_doubled_and_out_of_order_the_list_is_as_if_all_had_come_in_order(
    runs: list[list[Turn]], data: st.DataObject
) -> None:
    session = session_of(
        runs, data.draw(st.sampled_from([BroadcastConfig(), BroadcastConfig.debug()]))
    )
    doubled = data.draw(st.lists(st.sampled_from(session.envelopes), max_size=20))
    came = data.draw(st.permutations(session.envelopes + doubled))

    assert seen(all_of(came)) == seen(all_of(session.envelopes))
    assert missing(all_of(came)) == []
    assert needs_history(all_of(came))
    assert status(all_of(came)) in TERMINAL


@thorough
@given(runs=sessions, data=st.data())
def test_what_is_shown_depends_on_which_envelopes_came_at_every_point(
    runs: list[list[Turn]], data: st.DataObject
) -> None:
    session = session_of(runs)
    came = data.draw(st.permutations(session.envelopes))[: data.draw(st.integers(0, 40))]
    list = empty_list()
    for count, envelope in enumerate(came, start=1):
        before = seen(list) if count % 5 == 0 else None
        earlier, list = list, received(list, envelope)
        if before is not None:  # looking often, so that what was worked out before is used
            assert seen(list) == seen(all_of(sorted(came[:count], key=lambda e: e["seq"])))
            assert seen(earlier) == before


@thorough
@given(runs=sessions)
def test_with_nothing_lost_live_and_stored_messages_say_the_same(runs: list[list[Turn]]) -> None:
    runs = [[turn for turn in run if _is_told_alike(turn)] for run in runs]
    session = session_of(runs)
    list = empty_list()
    for number, text in enumerate(session.said, start=1):
        list = said(list, text, f"typed-{number}")
        mine = [envelope for envelope in session.envelopes if _run_of(envelope, session) == number]
        list = all_of(mine, list)

    live, stored = (
        in_one_piece(messages(list)),
        in_one_piece(messages(from_history(session.stored))),
    )

    assert by_response(live) == by_response(stored)


def _is_told_alike(turn: Turn) -> bool:
    """An answer to a question comes without an event, and calls that never ran have none."""
    return not isinstance(turn, str) and not {"ask", "stop"} & {*turn[1]}


def _run_of(envelope: Json, session: Session) -> int:
    ends = [
        one["seq"]
        for one in session.envelopes
        if one["payload"].get("status") in TERMINAL and not one["payload"]["parent_execution_id"]
    ]
    return 1 + sum(end < envelope["seq"] for end in ends)


@thorough
@given(runs=sessions, data=st.data())
def test_what_came_after_the_point_of_the_fetch_stays(
    runs: list[list[Turn]], data: st.DataObject
) -> None:
    session = session_of(runs)
    point = data.draw(st.integers(0, len(session.envelopes)))
    before, after = session.envelopes[:point], session.envelopes[point:]

    first = reconciled(all_of(session.envelopes), session.stored, point)
    second = all_of(after, reconciled(all_of(before), session.stored, point))

    assert messages(first) == messages(second)
    assert (missing(first), newest(first)) == (missing(second), newest(second))


@thorough
@given(garbage=st.lists(json_values, max_size=20), runs=sessions, data=st.data())
def test_nothing_odd_raises_or_harms_what_is_shown(
    garbage: list[Any], runs: list[list[Turn]], data: st.DataObject
) -> None:
    session = session_of(runs[:1])
    list = all_of(garbage)
    assert messages(list) == []
    assert list.ignored == len(garbage)
    some = st.lists(st.sampled_from(session.envelopes), unique_by=lambda one: one["id"])
    bent = [dict(envelope) for envelope in data.draw(some)]
    for envelope, odd in zip(bent, garbage, strict=False):
        name = data.draw(st.sampled_from([*envelope, "payload.x"]))
        if name == "payload.x":
            field = data.draw(st.sampled_from([*envelope["payload"]]))
            envelope["payload"] = {**envelope["payload"], field: odd}
        else:
            envelope[name] = odd
    both = data.draw(st.permutations(bent))

    if _ids_differ(bent):  # of two with one id, the first that comes is taken
        assert seen(all_of(both)) == seen(all_of(bent))
    from_history(garbage)
    assert messages(reconciled(all_of(bent), session.stored)) == messages(
        from_history(session.stored)
    )


def _ids_differ(envelopes: list[Json]) -> bool:
    return len({str(envelope["id"]) for envelope in envelopes}) == len(envelopes)
