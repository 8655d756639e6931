"""Every field of a plan reaches subagents and the definition hash, or is named as an exception.

Who adds a field adds a value for it here; the tests then say where else it has to be named.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.agent.base_criteria import BASE_CRITERIA
from stepwell.agent.child import NOT_INHERITED, child_plan
from stepwell.agent.plan import AgentPlan, Completion
from stepwell.continuation import ContinuationDecision
from stepwell.criteria import ContinuationCriteria, ErrorPolicy
from stepwell.drivers import ToolCallingDriver
from stepwell.events import EventBus
from stepwell.hooks import HookTrigger, make_hook
from stepwell.loop import AtLimit
from stepwell.messages import FinishReason, Message
from stepwell.models import CachedContext, ModelPresets, ModelSettings
from stepwell.replay.hooks import VOTERS_OF_EVERY_AGENT
from stepwell.sessions.directory import NOT_HASHED, definition_hash
from stepwell.sessions.ledger.session_ledger import SessionLedger
from stepwell.state import RepeatedCalls
from stepwell.testing import FakeClock, MockTool, ScriptedModel
from stepwell.tools import Tools

CHANGES: dict[str, Any] = {
    "model": ScriptedModel(["Hello"], name="other"),
    "llm_preset": "other",
    "model_presets": ModelPresets({"other": ScriptedModel(["Hello"])}),
    "driver": ToolCallingDriver(ScriptedModel(["Hello"])),
    "tools": (MockTool.returning("look", 1),),
    "capabilities": ("UseBash",),
    "context": CachedContext(messages=(Message.system("Count."),)),
    "settings": ModelSettings(temperature=0.5),
    "hooks": (make_hook(HookTrigger.BEFORE_TOOL, lambda _: None),),
    "criteria": (ContinuationCriteria.when(lambda _: ContinuationDecision.ALLOW),),
    "has_base_criteria": False,
    "max_steps": 3,
    "max_tokens": 5,
    "max_cost": 1.5,
    "timeout": 9.0,
    "cumulative_timeout": 8.0,
    "stop_on_finish_reasons": (FinishReason.LENGTH,),
    "error_policy": ErrorPolicy.retry_all(2),
    "max_retries": 4,
    "at_limit": AtLimit.PAUSE,
    "max_parallel_tools": 2,
    "repeated_calls": RepeatedCalls(stop_at=20),
    "max_result_characters": 5_000,
    "model_retries": 7,
    "cancel_grace": 1.0,
    "ledger": SessionLedger(),
    "completions": (Completion(lambda plan: plan, 0),),
    "events": EventBus(),
    "clock": FakeClock(),
    "new_id": lambda: "id",
}
GIVEN_TO_CHILDREN = {"tools", "context", "max_steps", "max_tokens", "max_cost", "timeout"}
"""What a child is given by the call that makes it."""


@pytest.mark.parametrize("field", AgentPlan.__struct_fields__)
def test_a_field_is_inherited_by_subagents_or_an_exception(field: str) -> None:
    assert field in CHANGES, f"give a value of {field} that is not its default, in CHANGES"
    parent = replace(AgentPlan(), **{field: CHANGES[field]})
    child = child_plan(parent, instructions=[], tools=[])
    default, inherited = getattr(AgentPlan(), field), getattr(child, field)
    if field in NOT_INHERITED:
        assert inherited == default
    elif field not in GIVEN_TO_CHILDREN:
        assert inherited != default, f"{field}: inherit it, or name it in NOT_INHERITED"


@pytest.mark.parametrize("field", AgentPlan.__struct_fields__)
def test_a_field_counts_in_the_definition_hash_or_is_an_exception(field: str) -> None:
    changed = replace(AgentPlan(), **{field: CHANGES[field]})
    plain = definition_hash(AgentPlan(), Tools())
    is_same = definition_hash(changed, Tools(changed.tools)) == plain
    assert is_same == (field in NOT_HASHED), f"{field}: hash it, or name it in NOT_HASHED"


@pytest.mark.parametrize("exceptions", [NOT_INHERITED, NOT_HASHED, CHANGES])
def test_exceptions_are_fields_of_the_plan(exceptions: dict[str, Any]) -> None:
    assert set(exceptions) <= set(AgentPlan.__struct_fields__)


def test_a_setting_at_its_default_does_not_count() -> None:
    given = replace(AgentPlan(), max_steps=20, settings=ModelSettings(), error_policy=ErrorPolicy())
    assert definition_hash(given, Tools()) == definition_hash(AgentPlan(), Tools())


def test_the_base_criteria_vote_in_their_order_and_replays_know_them_all() -> None:
    limited = replace(AgentPlan(), max_cost=1.0, cumulative_timeout=9.0, model=ScriptedModel([]))
    criteria = limited.assemble()._criteria.criteria  # pyright: ignore[reportPrivateUsage]
    assert [type(criterion) for criterion in criteria] == [base.kind for base in BASE_CRITERIA]
    assert {base.name for base in BASE_CRITERIA} <= VOTERS_OF_EVERY_AGENT
