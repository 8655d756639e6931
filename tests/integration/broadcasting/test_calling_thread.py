"""The thread in which sync broadcasters are called."""

import contextvars
import os
import subprocess
import sys
import threading

import pytest

from stepwell.broadcasting.delivery import calling_thread
from stepwell.broadcasting.delivery.calling_thread import CallingThread

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


FORKS = """
import os, sys, threading, time
from stepwell.broadcasting.delivery.calling_thread import CallingThread

caller, is_busy, may_end = CallingThread(), threading.Event(), threading.Event()

def busy():
    is_busy.set()
    may_end.wait()

caller.call(busy)
is_busy.wait()
made = []
caller.call(lambda: made.append("the parent's"))
child = os.fork()
if child == 0:
    made.append(caller.call(lambda: "the child's").result(60).value)
    print(made, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
may_end.set()
caller.call(lambda: made.append("the parent's again")).result(60)
print(made)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_has_a_thread_of_its_own_and_makes_its_own_calls_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.stdout.splitlines() == [
        '["the child\'s"]',
        '["the parent\'s", "the parent\'s again"]',
    ], done.stderr


FORKS_AFTER_A_RUN = """
import os
from stepwell import Agent
from stepwell.broadcasting import AgentEventEnvelopeAdapter, RecordingBroadcaster
from stepwell.testing import ScriptedModel

agent, screen = Agent(ScriptedModel(["One.", "Two."])), RecordingBroadcaster()
adapter = AgentEventEnvelopeAdapter(screen, "s", "e")
agent.wiretap(adapter)
agent.run_sync("Go.")
adapter.reset("e2")
child = os.fork()
if child == 0:
    agent.run_sync("Again.")
    print(adapter.delivered == len(screen.envelopes), screen.envelopes[-1]["payload"]["status"])
    os._exit(0 if screen.envelopes[-1]["execution_id"] == "e2" else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_an_adapter_can_be_used_on_after_a_fork() -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", FORKS_AFTER_A_RUN],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.stdout.splitlines() == ["True completed", "0"], done.stderr


def test_no_call_is_lost_between_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling_thread, "IDLE_SECONDS", 0.0)
    caller = CallingThread()
    results = [caller.call(lambda number=number: number).result(LONG) for number in range(500)]

    assert [result.value for result in results] == list(range(500))
