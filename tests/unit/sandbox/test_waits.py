"""Work that must not be left half done."""

import asyncio

import pytest

from stepwell.sandbox.waits import finish_uncancelled


async def cancelled_while(work_fails: bool) -> tuple[asyncio.Task[str], list[str]]:
    done: list[str] = []
    go_on = asyncio.Event()

    async def work() -> str:
        await go_on.wait()
        done.append("to its end")
        if work_fails:
            raise ZeroDivisionError
        return "worked"

    task = asyncio.ensure_future(finish_uncancelled(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    await asyncio.wait({task})
    return task, done


@pytest.mark.parametrize("work_fails", [False, True])
async def test_it_is_finished_first_and_the_cancellation_is_never_lost(work_fails: bool) -> None:
    task, done = await cancelled_while(work_fails)
    assert done == ["to its end"]
    assert task.cancelled()


async def test_without_a_cancellation_its_result_or_error_is_told() -> None:
    async def work(fails: bool) -> str:
        await asyncio.sleep(0)
        if fails:
            raise ZeroDivisionError
        return "worked"

    assert await finish_uncancelled(work(False)) == "worked"
    with pytest.raises(ZeroDivisionError):
        await finish_uncancelled(work(True))


def test_a_loop_that_closes_lets_it_finish() -> None:
    done: list[str] = []

    async def work() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("to its end")

    async def main() -> None:
        kept = asyncio.ensure_future(finish_uncancelled(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not kept.done()

    asyncio.run(main())
    assert done == ["to its end"]
