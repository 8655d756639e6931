"""Typed output: validated values, bounded re-asks, and what the state keeps of them."""

import dataclasses
import datetime
from typing import Any

import pytest
from msgspec import UNSET, Struct
from pydantic import BaseModel, Field, field_validator

from stepwell import (
    Agent,
    AgentBuilder,
    AgentStatus,
    ConfigurationError,
    ErrorPolicy,
    FinishReason,
    HookTrigger,
    ModelResponse,
    StopReason,
    make_hook,
)
from stepwell.models import ResponseFormat
from stepwell.testing import MockTool, ScriptedModel, call


class Line(BaseModel):
    name: str
    price: float = Field(ge=0)


class Invoice(BaseModel):
    number: str
    lines: list[Line]


GOOD = '{"number": "A1", "lines": [{"name": "tea", "price": 2.5}]}'
INVOICE = Invoice(number="A1", lines=[Line(name="tea", price=2.5)])


async def test_the_output_is_a_value_of_the_type() -> None:
    state = await Agent(ScriptedModel([GOOD]), output_type=Invoice).run("Read it.")

    assert state.output == INVOICE
    assert isinstance(state.output, Invoice)
    assert state.final_response == GOOD
    assert state.unwrap() == INVOICE


async def test_the_state_keeps_it_as_json_data_in_its_step() -> None:
    state = await Agent(ScriptedModel([GOOD]), output_type=Invoice).run("Read it.")

    assert state.steps[-1].step.output == {
        "number": "A1",
        "lines": [{"name": "tea", "price": 2.5}],
    }


async def test_the_model_is_asked_for_the_schema_in_every_step() -> None:
    model = ScriptedModel([call("look"), GOOD])
    agent = Agent(model, tools=[MockTool.returning("look", "an invoice")], output_type=Invoice)

    await agent.run("Read it.")

    formats = [request.format for request in model.requests]
    assert formats[0] == formats[1]
    assert isinstance(formats[0], ResponseFormat)
    assert formats[0].name == "Invoice"
    assert formats[0].schema is not None
    assert set(formats[0].schema["properties"]) == {"number", "lines"}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("I can't say.", "Invalid JSON"),
        ('{"number": "A1"}', "lines: Field required"),
        ('{"number": "A1", "lines": [{"name": "tea", "price": -1}]}', "lines.0.price"),
        ('{"number": "A1", "lines": "none"}', "(got 'none')"),
        ("", "it is empty"),
        ("[1, 2]", "object"),
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_for_again(answer: str, complaint: str) -> None:
    model = ScriptedModel([answer, GOOD])

    state = await Agent(model, output_type=Invoice).run("Read it.")

    assert state.status is AgentStatus.COMPLETED
    assert state.output == INVOICE
    asked = model.requests[1].messages[-1]
    assert asked.is_user()
    assert complaint in asked.text
    assert '"properties"' in asked.text
    votes = [vote.reason for vote in state.steps[0].outcome.evaluations]
    assert any("does not fit Invoice" in reason for reason in votes)


async def test_an_answer_cut_off_at_the_token_bound_is_told_so() -> None:
    cut = ModelResponse(text='{"number": "A1", "lin', finish_reason=FinishReason.LENGTH)
    model = ScriptedModel([cut, GOOD])

    await Agent(model, output_type=Invoice).run("Read it.")

    assert "cut off at max_tokens" in model.requests[1].messages[-1].text


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_the_re_asks_are_bounded_and_the_run_fails_explained(retries: int) -> None:
    model = ScriptedModel(["nope"] * 9)

    state = await Agent(model, output_type=Invoice, output_retries=retries).run("Read it.")

    assert len(model.requests) == retries + 1
    assert state.status is AgentStatus.FAILED
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.ERROR
    assert state.output is None
    assert state.stop.resolved_by == "TypedOutput"
    assert f"output_retries is {retries}" in state.explain()


async def test_the_bound_holds_under_a_policy_that_retries_everything() -> None:
    model = ScriptedModel(["nope"] * 9)
    agent = Agent(model, output_type=Invoice, error_policy=ErrorPolicy.retry_all(9))

    state = await agent.run("Read it.")

    assert len(model.requests) == 3
    assert state.status is AgentStatus.FAILED


async def test_each_run_has_its_own_count() -> None:
    model = ScriptedModel(["nope", GOOD, "nope", GOOD])
    agent = Agent(model, output_type=Invoice, output_retries=1)

    first = await agent.run("Read it.")
    second = await agent.run(first.with_user_message("And this one."))

    assert (first.output, second.output) == (INVOICE, INVOICE)


async def test_fenced_json_is_taken() -> None:
    state = await Agent(ScriptedModel([f"```json\n{GOOD}\n```"]), output_type=Invoice).run(
        "Read it."
    )

    assert state.output == INVOICE


@dataclasses.dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("output_type", "answer", "value"),
    [
        (list[int], '{"result": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (int, '{"result": 4}', 4),
        (bool | None, '{"result": null}', None),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
async def test_other_types_than_models(output_type: Any, answer: str, value: Any) -> None:
    model = ScriptedModel([answer])

    state = await Agent(model, output_type=output_type).run("Go.")

    assert state.status is AgentStatus.COMPLETED, state.explain()
    assert state.output == value
    form = model.requests[0].format
    assert form is not None
    assert form.schema is not None
    assert form.schema["type"] == "object"


async def test_a_later_step_without_output_hides_the_earlier_value() -> None:
    again = make_hook(
        HookTrigger.AFTER_STEP,
        lambda context: (
            context.request_step("once more") if context.state.step_count == 1 else None
        ),
    )
    model = ScriptedModel([GOOD, "nope"])

    state = await Agent(model, output_type=Invoice, output_retries=0, hooks=[again]).run("Go.")

    assert state.status is AgentStatus.FAILED
    assert state.output is None


async def test_run_iterator_and_stream_agree() -> None:
    def agent() -> Agent:
        return Agent(ScriptedModel(["nope", GOOD]), output_type=Invoice)

    ran = await agent().run("Go.")
    iterated = [state async for state in agent().iterator("Go.")][-1]
    streamed = [part async for part in agent().stream("Go.")][-1]

    assert ran.output == iterated.output == streamed.state.output == INVOICE


async def test_the_builder_knows_it_too() -> None:
    builder = AgentBuilder.base().with_model(ScriptedModel([GOOD])).with_output(Invoice, retries=0)

    assert (await builder.build().run("Go.")).output == INVOICE


async def test_an_own_hook_sees_the_answer_before_it_is_checked() -> None:
    seen: list[Any] = []
    hook = make_hook(
        HookTrigger.AFTER_STEP, lambda context: seen.append(context.state.current_step.output)
    )

    await Agent(ScriptedModel([GOOD]), output_type=Invoice, hooks=[hook]).run("Go.")

    assert seen == [UNSET]


@pytest.mark.parametrize("retries", [-1, 1.5, "two"])
def test_odd_counts_are_refused(retries: Any) -> None:
    with pytest.raises(ConfigurationError, match="output_retries"):
        Agent(ScriptedModel([]), output_type=Invoice, output_retries=retries)


def test_a_type_without_a_schema_is_refused() -> None:
    class Plain:
        pass

    with pytest.raises(ConfigurationError, match="can't be an output type"):
        Agent(ScriptedModel([]), output_type=Plain)


@pytest.mark.parametrize("output", [{"type": "object"}, lambda: 1, 7, "Invoice"])
def test_what_is_no_type_is_refused(output: Any) -> None:
    with pytest.raises(ConfigurationError, match="can't be an output type"):
        Agent(ScriptedModel([]), output_type=output)


class Strict(BaseModel, strict=True):
    day: datetime.date
    pair: tuple[int, int]


async def test_a_list_of_strict_models_takes_what_the_model_alone_takes() -> None:
    one = '{"day": "2020-01-01", "pair": [1, 2]}'

    alone = await Agent(ScriptedModel([one]), output_type=Strict).run("Go.")
    listed = await Agent(ScriptedModel([f"[{one}]"]), output_type=list[Strict]).run("Go.")

    assert listed.output == [alone.output]


class Picky(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def check(cls, value: str) -> str:
        return value + 1 if value == "bad" else value  # type: ignore[operator]


async def test_a_validator_that_raises_asks_again_too() -> None:
    model = ScriptedModel(['{"name": "bad"}', '{"name": "good"}'])

    assert (await Agent(model, output_type=Picky).run("Go.")).output == Picky(name="good")


async def test_answers_nested_without_end_ask_again() -> None:
    model = ScriptedModel(["[" * 100_000, '{"result": [1]}'])

    assert (await Agent(model, output_type=list[Any]).run("Go.")).output == [1]


async def test_a_run_that_gave_no_output_has_none_and_not_its_text() -> None:
    failing = make_hook(HookTrigger.AFTER_STEP, lambda context: 1 / 0)
    tool = MockTool.returning("look", 1)

    broken = await Agent(ScriptedModel([GOOD]), output_type=Invoice, hooks=[failing]).run("Go.")
    limited = Agent(ScriptedModel([call("look")]), tools=[tool], output_type=Invoice, max_steps=1)

    assert broken.status is AgentStatus.FAILED
    assert broken.output is None
    assert (await limited.run("Go.")).output is None


async def test_the_last_output_type_counts() -> None:
    builder = AgentBuilder.base().with_model(ScriptedModel(['{"result": 4}']))

    state = await builder.with_output(Invoice).with_output(int).build().run("Go.")

    assert state.output == 4


class Place(Struct):
    city: str
    zip_code: int | None = None


@pytest.mark.parametrize(
    ("kind", "answer", "value", "data"),
    [
        (Place, '{"city": "Ulm"}', Place("Ulm"), {"city": "Ulm", "zip_code": None}),
        (
            list[Place],
            '{"result": [{"city": "Ulm", "zip_code": 89073}]}',
            [Place("Ulm", 89073)],
            [{"city": "Ulm", "zip_code": 89073}],
        ),
    ],
)
async def test_a_msgspec_struct_is_an_output_type(
    kind: Any, answer: str, value: Any, data: Any
) -> None:
    model = ScriptedModel(['{"city": 5}', answer])
    state = await Agent(model, output_type=kind).run("Where?")

    assert (state.status, state.output) == (AgentStatus.COMPLETED, value)
    assert state.steps[-1].step.output == data
    assert model.requests[0].format is not None
    schema = model.requests[0].format.schema
    assert schema is not None
    assert schema["type"] == "object"
    assert "can't be read" in model.requests[1].messages[-1].text


async def test_the_old_keyword_still_works_and_names_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="output_type="):
        agent = Agent(ScriptedModel([GOOD]), output=Invoice)
    assert (await agent.run("Read it.")).output == INVOICE
    with pytest.raises(TypeError, match="unexpected keyword argument 'outputs'"):
        Agent(ScriptedModel([GOOD]), outputs=Invoice)
