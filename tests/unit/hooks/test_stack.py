"""The hook stack: order, triggers, and what a hook may answer."""

import pytest

from stepwell import AgentState, ConfigurationError, HookContext, HookTrigger, make_hook
from stepwell.continuation import AgentStop
from stepwell.errors import HookError
from stepwell.hooks import ALL_TRIGGERS, HookStack

AFTER_STEP = HookTrigger.AFTER_STEP


def context(trigger=AFTER_STEP):
    return HookContext(trigger=trigger, state=AgentState.empty(agent_id="agent"))


def noting(name):
    """A hook function that writes its name into the state's metadata."""

    def note(given):
        seen = given.state.metadata.get("seen", ())
        return given.with_state(given.state.with_metadata({"seen": (*seen, name)}))

    return note


def seen(answer):
    return answer.state.metadata.get("seen", ())


def test_triggers_are_the_ten_wire_words():
    assert [str(trigger) for trigger in HookTrigger] == [
        "before_execution",
        "before_step",
        "before_inference",
        "after_inference",
        "before_tool",
        "after_tool",
        "after_step",
        "on_stop",
        "after_execution",
        "on_error",
    ]


async def test_b044_higher_priority_first_then_order_of_registration():
    stack = HookStack(
        [
            make_hook("after_step", noting("low"), priority=-1),
            make_hook("after_step", noting("first")),
            make_hook("after_step", noting("high"), priority=10),
            make_hook("after_step", noting("second")),
        ]
    )

    assert seen(await stack.run(context())) == ("high", "first", "second", "low")


async def test_b044_hooks_for_other_triggers_are_skipped():
    stack = HookStack(
        [make_hook("before_step", noting("other")), make_hook("after_step", noting("mine"))]
    )

    assert seen(await stack.run(context())) == ("mine",)


async def test_one_hook_may_want_several_triggers():
    stack = HookStack([make_hook(["before_step", AFTER_STEP], noting("both"))])

    assert seen(await stack.run(context(HookTrigger.BEFORE_STEP))) == ("both",)
    assert seen(await stack.run(context(AFTER_STEP))) == ("both",)
    assert not stack.has(HookTrigger.ON_STOP)


@pytest.mark.parametrize("trigger", list(HookTrigger))
async def test_b046_all_triggers_match_every_trigger(trigger):
    stack = HookStack([make_hook(ALL_TRIGGERS, noting("all"))])

    assert stack.has(trigger)
    assert seen(await stack.run(context(trigger))) == ("all",)


@pytest.mark.parametrize("trigger", list(HookTrigger))
async def test_b046_no_triggers_match_nothing(trigger):
    stack = HookStack([make_hook([], noting("none"))])

    assert not stack.has(trigger)
    assert seen(await stack.run(context(trigger))) == ()


async def test_async_hooks_are_awaited_in_order():
    async def slow(given):
        return noting("slow")(given)

    stack = HookStack([make_hook("after_step", slow), make_hook("after_step", noting("quick"))])

    assert seen(await stack.run(context())) == ("slow", "quick")


async def test_a_hook_that_returns_none_changes_nothing():
    given = context()

    assert await HookStack([make_hook("after_step", lambda _: None)]).run(given) is given


async def test_a_hook_that_raises_is_named_with_its_trigger_and_cause():
    def broken(_):
        raise ValueError("boom")

    with pytest.raises(HookError, match=r"'mine' raised at after_step: ValueError: boom") as caught:
        await HookStack([make_hook("after_step", broken, name="mine")]).run(context())

    assert caught.value.hook == "mine"
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_hook_that_returns_something_else_is_an_error_that_says_so():
    stack = HookStack([make_hook("after_step", lambda given: given.state, name="mine")])

    with pytest.raises(HookError, match=r"'mine'.*returned AgentState, not a HookContext"):
        await stack.run(context())


async def test_agent_stop_passes_through_unwrapped():
    def stop(_):
        raise AgentStop("guard", "too hot")

    with pytest.raises(AgentStop, match="too hot"):
        await HookStack([make_hook("after_step", stop)]).run(context())


def test_a_hook_is_named_after_its_function():
    def remember(_):
        return None

    assert make_hook("after_step", remember).name.endswith("remember")
    assert make_hook("after_step", remember, name="given").name == "given"


def test_an_unknown_trigger_is_a_construction_error_that_lists_the_known():
    with pytest.raises(ConfigurationError, match=r"'sometimes'.*before_execution, before_step"):
        make_hook("sometimes", lambda _: None)


def test_a_hook_must_be_callable():
    with pytest.raises(ConfigurationError, match="callable"):
        make_hook("after_step", "remember")
