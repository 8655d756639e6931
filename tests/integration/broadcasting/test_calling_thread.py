"""The thread in which sync broadcasters are called."""

import contextvars
import threading

import pytest

from stepwell.broadcasting import calling_thread
from stepwell.broadcasting.calling_thread import CallingThread

LONG = 600.0


def test_calls_are_made_in_order_in_one_daemon_thread() -> None:
    caller = CallingThread()
    threads: list[threading.Thread] = []
    futures = [
        caller.call(lambda number=number: (threads.append(threading.current_thread()), number))
        for number in range(20)
    ]

    assert [future.result(LONG).value[1] for future in futures] == list(range(20))
    assert len(set(threads)) == 1
    assert threads[0].daemon
    assert threads[0] is not threading.current_thread()


def test_what_a_call_raises_is_its_outcome_and_the_next_call_is_made() -> None:
    caller = CallingThread()

    def leave() -> None:
        raise SystemExit("gone")

    assert caller.call(leave).result(LONG) == (None, "SystemExit: gone")
    assert caller.call(lambda: 2).result(LONG) == (2, None)


def test_a_call_sees_the_context_of_the_caller() -> None:
    request = contextvars.ContextVar[str]("request")
    request.set("r-1")

    assert CallingThread().call(request.get).result(LONG).value == "r-1"


def test_an_idle_thread_ends_and_the_next_call_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calling_thread, "IDLE_SECONDS", 0.01)
    caller = CallingThread()
    first = caller.call(threading.current_thread).result(LONG).value
    first.join(LONG)
    assert not first.is_alive()
    second = caller.call(threading.current_thread).result(LONG).value

    assert second is not first
    second.join(LONG)


def test_no_call_is_lost_between_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling_thread, "IDLE_SECONDS", 0.0)
    caller = CallingThread()
    results = [caller.call(lambda number=number: number).result(LONG) for number in range(500)]

    assert [result.value for result in results] == list(range(500))
