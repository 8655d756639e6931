"""``UseSelfCritique``, and what happens after the critic's judgement."""

import logging
from collections.abc import Iterable

from msgspec.structs import replace

from stepwell.agent.metadata_keys import CRITIQUE
from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.critique.critic import (
    CRITIC_PROMPT,
    Critic,
    Judgement,
    instructions,
    judgement_without_verdict,
)
from stepwell.capabilities.critique.task import task_of, with_task_stored
from stepwell.continuation import StopReason, StopSignal
from stepwell.drivers import is_wrapping_up
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import Message
from stepwell.models import Model, ModelSettings
from stepwell.models.attempts import check_model
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import check_integer, check_kind, check_seconds, check_text, check_texts
from stepwell.state import AgentState, AgentStep, StepType

logger = logging.getLogger("stepwell.capabilities.critique")

SOURCE = "SelfCritique"

MIN_EVIDENCE_CHARS = 200
"""With fewer characters, the critic would see little but the note on what is left out."""

AFTER_TYPED_OUTPUT = -1100
"""Typed output is validated first, so that no critique is paid for an answer of the wrong type."""


class UseSelfCritique:
    """Lets a critic judge each final answer; a rejected one goes back with the critic's feedback.

    After ``max_iterations`` rejected answers in one execution the run stops with reason ``guard``;
    the last answer is kept and marked as not approved. If the critic fails, the answer passes and
    the failure is recorded. The critic uses the agent's own model unless ``model`` is given, as an
    object or by name; its usage counts towards the run's budgets. A task or answer over
    ``max_evidence_chars`` characters is truncated in the middle for the critic.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> critic = ScriptedModel(['{"approved": true, "feedback": ""}'])
    >>> agent = Agent(ScriptedModel(["Four."]), capabilities=[UseSelfCritique(model=critic)])
    >>> agent.run_sync("What is 2 + 2?").metadata["critique"]["approved"]
    True
    """

    def __init__(
        self,
        max_iterations: int = 3,
        *,
        model: Model | str | None = None,
        criteria: str | Iterable[str] = (),
        prompt: str = CRITIC_PROMPT,
        settings: ModelSettings = NO_SETTINGS,
        timeout: float | None = 120.0,
        max_evidence_chars: int = 40_000,
    ) -> None:
        check_integer(max_iterations, "max_iterations", least=1)
        check_text(prompt, "prompt")
        check_kind(settings, "settings", ModelSettings)
        if timeout is not None:
            check_seconds(timeout, "timeout")
        check_integer(max_evidence_chars, "max_evidence_chars", least=MIN_EVIDENCE_CHARS)
        if isinstance(model, str):
            check_text(model, "model")
        elif model is not None:
            check_model(model, "UseSelfCritique")
        criteria_list = (
            (criteria,) if isinstance(criteria, str) else check_texts(criteria, "criteria")
        )
        self._max_iterations = max_iterations
        self._model = model
        self._settings = settings
        self._timeout = timeout
        self._max_evidence_chars = max_evidence_chars
        self._instructions = instructions(prompt, criteria_list)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the critique hooks."""
        return plan.when_complete(self._add_hooks)

    def _add_hooks(self, plan: AgentPlan) -> AgentPlan:
        if any(hook.name == SOURCE for hook in plan.hooks):
            raise ConfigurationError("UseSelfCritique was added twice; one critic is enough")
        asked = plan.asked_apart(self._model, "UseSelfCritique")
        if asked is None:
            return plan
        model, own = asked
        critic = Critic(
            model,
            self._instructions,
            self._settings.over(own),
            self._timeout,
            self._max_evidence_chars,
        )
        review = _Review(critic, self._max_iterations)
        begin = make_hook(HookTrigger.BEFORE_EXECUTION, _store_task, name=SOURCE)
        judge = make_hook(
            HookTrigger.AFTER_STEP,
            review.review,
            priority=AFTER_TYPED_OUTPUT,
            name=SOURCE,
            asks_model=True,
        )
        return plan.with_hook(begin).with_hook(judge)


class _Review:
    """Acts on judgements. Keeps no state of a run: rejected answers are counted in the steps of
    the execution, so that a resumed execution continues counting and a new one starts over."""

    def __init__(self, critic: Critic, max_iterations: int) -> None:
        self._critic = critic
        self._max_iterations = max_iterations

    async def review(self, context: HookContext) -> HookContext | None:
        """Judge the step's answer if it is final and nothing else was decided about it."""
        state, step = context.state, context.state.current_step
        if step is None or not _is_final_answer(state, step):
            return None
        judgement = await self._judge(state, step)
        rejected = 1 + sum(_is_rejected(taken.step) for taken in state.steps)
        record = judgement.record(rejected)
        amended = replace(
            step,
            usage=step.usage + judgement.usage,
            cost=step.cost + judgement.cost,
            metadata={**step.metadata, CRITIQUE: record},
        )
        newest = {CRITIQUE: {**record, "step": state.step_number}}
        context = context.with_state(state.with_step_amended(amended).with_metadata(newest))
        if judgement.failure:
            logger.warning("the critic did not judge an answer: %s", judgement.failure)
        if judgement.approved is not False:
            return context
        return self._reject(context, judgement.feedback, rejected)

    async def _judge(self, state: AgentState, step: AgentStep) -> Judgement:
        if is_wrapping_up(state):
            return judgement_without_verdict("the run wraps up at a limit, so no step is left")
        return await self._critic.judge(task_of(state), step.text, state)

    def _reject(self, context: HookContext, feedback: str, rejected: int) -> HookContext:
        reason = feedback or "(no reason was given)"
        if rejected < self._max_iterations:
            request = (
                f"the critic rejected the answer ({rejected} of {self._max_iterations}): {reason}"
            )
            state = context.state.with_message(_feedback_message(context.state, reason))
            return context.with_state(state).request_step(request, source=SOURCE)
        answers = "the answer" if rejected == 1 else f"{rejected} answers"
        signal = StopSignal(
            reason=StopReason.GUARD,
            message=f"the critic rejected {answers}, and max_iterations is {self._max_iterations}; "
            f"the last answer is kept but not approved. The critic's last feedback: {reason}",
            context={"rejected": rejected, "max_iterations": self._max_iterations},
            source=SOURCE,
        )
        return context.with_state(context.state.with_signal(signal))


def _store_task(context: HookContext) -> HookContext:
    """Store the task of a new execution. An execution resumed after a pause has one already."""
    return context if context.state.steps else context.with_state(with_task_stored(context.state))


def _is_final_answer(state: AgentState, step: AgentStep) -> bool:
    """Return whether the run would end with this answer: no hook sent it back or stopped."""
    execution = state.execution
    is_undecided = execution is not None and not (execution.signals or execution.continue_requests)
    is_final = step.step_type is StepType.FINAL_RESPONSE
    return is_final and is_undecided and state.scope.signal is None


def _is_rejected(step: AgentStep) -> bool:
    return step.metadata.get(CRITIQUE, {}).get("approved") is False


def _feedback_message(state: AgentState, feedback: str) -> Message:
    owner = state.agent_id if state.execution is None else state.execution.id
    return Message.user(
        f"A reviewer rejected your answer: {feedback}\n\nFix this and give the complete answer "
        "again. Don't mention the review.",
        id=f"{owner}:{state.step_number}:critique",
        metadata={"source": SOURCE},
    )
