"""The choice of a sandbox, as far as nothing is run."""

import asyncio

import pytest

from stepwell.errors import NoSandboxError, SandboxError
from stepwell.sandbox import default_sandbox, proven
from stepwell.sandbox.choice import Once, candidates, first_proven
from stepwell.sandbox.unconfined import UnconfinedSandbox


class Missing(UnconfinedSandbox):
    """A sandbox that is not there."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def unavailable(self) -> str | None:
        return f"{self._name} is not installed"


async def test_without_any_sandbox_every_reason_and_the_fix_are_told() -> None:
    with pytest.raises(NoSandboxError) as refusal:
        await first_proven([Missing("first"), Missing("second")])
    text = str(refusal.value)
    assert "- first: first is not installed\n- second: second is not installed\n" in text
    assert "pip install 'stepwell[sandbox]'" in text
    assert "UnconfinedSandbox()" in text


def test_the_order_is_bubblewrap_sandlock_docker_podman() -> None:
    names = [candidate.name for candidate in candidates()]
    assert names == ["bubblewrap", "sandlock", "docker", "podman"]


def test_what_is_unconfined_is_never_proven_nor_chosen() -> None:
    unconfined = UnconfinedSandbox()
    assert proven(unconfined) is unconfined
    assert "nothing is confined" in repr(unconfined)
    assert all(not isinstance(candidate, UnconfinedSandbox) for candidate in candidates())


def test_nothing_is_proven_twice() -> None:
    chosen = default_sandbox()
    assert proven(chosen) is chosen
    bubblewrap = proven(candidates()[0])
    assert proven(bubblewrap) is bubblewrap
    assert bubblewrap.name == "bubblewrap"


async def test_many_who_ask_at_once_are_told_what_was_found_once() -> None:
    found: list[int] = []

    async def find() -> int:
        await asyncio.sleep(0)
        found.append(len(found))
        return found[-1]

    once = Once(find)
    assert await asyncio.gather(*(once.value() for _ in range(20))) == [0] * 20
    assert await once.value() == 0


async def test_a_failure_is_told_to_all_who_wait_and_the_next_tries_again() -> None:
    tries: list[None] = []

    async def find() -> str:
        await asyncio.sleep(0)
        tries.append(None)
        if len(tries) == 1:
            raise SandboxError("not yet")
        return "found"

    once = Once(find)
    results = await asyncio.gather(*(once.value() for _ in range(5)), return_exceptions=True)
    assert [str(result) for result in results] == ["not yet"] * 5
    assert await once.value() == "found"


async def test_if_the_finder_is_cancelled_a_waiter_takes_over() -> None:
    may_find = asyncio.Event()
    entered: list[None] = []

    async def find() -> str:
        entered.append(None)
        await may_find.wait()
        return "found"

    once = Once(find)
    finder = asyncio.ensure_future(once.value())
    await asyncio.sleep(0)
    waiter = asyncio.ensure_future(once.value())
    await asyncio.sleep(0)
    finder.cancel()
    may_find.set()
    assert await waiter == "found"
    assert len(entered) == 2
    assert finder.cancelled()


async def test_a_waiter_that_gives_up_does_not_disturb_the_others() -> None:
    may_find = asyncio.Event()

    async def find() -> str:
        await may_find.wait()
        return "found"

    once = Once(find)
    finder, impatient, patient = (asyncio.ensure_future(once.value()) for _ in range(3))
    await asyncio.sleep(0)
    impatient.cancel()
    may_find.set()
    assert (await finder, await patient) == ("found", "found")
