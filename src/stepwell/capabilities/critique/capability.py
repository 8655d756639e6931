"""``UseSelfCritique`` and what follows from the critic's judgement."""

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
    unjudged,
)
from stepwell.capabilities.critique.task import task_of, with_task_noted
from stepwell.continuation import StopReason, StopSignal
from stepwell.drivers import is_wrapping_up
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import Message
from stepwell.models import Model, ModelSettings
from stepwell.models.attempts import refuse_what_is_no_model
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import (
    check_integer,
    check_kind,
    check_seconds,
    check_text,
    check_texts,
)
from stepwell.state import AgentState, AgentStep, StepType

logger = logging.getLogger("stepwell.capabilities.critique")

SOURCE = "SelfCritique"

LEAST_EVIDENCE = 200
"""Characters; with less, the note of what is left out would be most of what a critic sees."""

BEHIND_TYPED_OUTPUT = -1100
"""An answer that does not fit its type is asked for again before anyone pays for a critique."""


class UseSelfCritique:
    """Has a critic judge each final answer; a rejected one goes back with the critic's feedback.

    After ``max_iterations`` rejected answers of an execution the run stops with reason ``guard``;
    the last answer stays, marked as not approved. A critic that fails lets the answer pass, and
    the failure is recorded. The critic is the agent's own model unless another is given, as an
    object or by name; what it uses counts into the run's budgets. Of a task or an answer with more
    than ``max_evidence_chars`` characters it sees the beginning and the end.

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
        check_integer(max_evidence_chars, "max_evidence_chars", least=LEAST_EVIDENCE)
        if isinstance(model, str):
            check_text(model, "model")
        elif model is not None:
            refuse_what_is_no_model(model, "UseSelfCritique")
        judged_by = (criteria,) if isinstance(criteria, str) else check_texts(criteria, "criteria")
        self._max_iterations = max_iterations
        self._model = model
        self._settings = settings
        self._timeout = timeout
        self._max_evidence_chars = max_evidence_chars
        self._instructions = instructions(prompt, judged_by)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan whose final answers are judged."""
        return plan.when_complete(self._completed)

    def _completed(self, plan: AgentPlan) -> AgentPlan:
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
        begin = make_hook(HookTrigger.BEFORE_EXECUTION, _begun, name=SOURCE)
        judge = make_hook(
            HookTrigger.AFTER_STEP,
            review.reviewed,
            priority=BEHIND_TYPED_OUTPUT,
            name=SOURCE,
            asks_model=True,
        )
        return plan.with_hook(begin).with_hook(judge)


class _Review:
    """What follows from a judgement. Holds nothing of a run: rejected answers are counted in the
    steps of the execution, so that a resumed one goes on counting and a new one starts over."""

    def __init__(self, critic: Critic, max_iterations: int) -> None:
        self._critic = critic
        self._max_iterations = max_iterations

    async def reviewed(self, context: HookContext) -> HookContext | None:
        """After a step: judge the answer, if it is one and nothing else was decided about it."""
        state, step = context.state, context.state.current_step
        if step is None or not _stands_as_final(state, step):
            return None
        judged = await self._judged(state, step)
        rejected = 1 + sum(_was_rejected(taken.step) for taken in state.steps)
        record = judged.record(rejected)
        amended = replace(
            step,
            usage=step.usage + judged.usage,
            cost=step.cost + judged.cost,
            metadata={**step.metadata, CRITIQUE: record},
        )
        newest = {CRITIQUE: {**record, "step": state.step_number}}
        context = context.with_state(state.with_step_amended(amended).with_metadata(newest))
        if judged.failure:
            logger.warning("an answer was not judged: %s", judged.failure)
        if judged.approved is not False:
            return context
        return self._rejected(context, judged.feedback, rejected)

    async def _judged(self, state: AgentState, step: AgentStep) -> Judgement:
        if is_wrapping_up(state):
            return unjudged("the run wraps up at a limit, and no step is left")
        return await self._critic.judgement(task_of(state), step.text, state)

    def _rejected(self, context: HookContext, feedback: str, rejected: int) -> HookContext:
        said = feedback or "(no reason was given)"
        if rejected < self._max_iterations:
            words = f"the critic rejected the answer ({rejected} of {self._max_iterations}): {said}"
            state = context.state.with_message(_feedback_message(context.state, said))
            return context.with_state(state).request_step(words, source=SOURCE)
        answers = "the answer" if rejected == 1 else f"{rejected} answers"
        signal = StopSignal(
            reason=StopReason.GUARD,
            message=f"the critic rejected {answers}, and max_iterations is {self._max_iterations}; "
            f"the last answer is kept, not approved. The critic's last feedback: {said}",
            context={"rejected": rejected, "max_iterations": self._max_iterations},
            source=SOURCE,
        )
        return context.with_state(context.state.with_signal(signal))


def _begun(context: HookContext) -> HookContext:
    """A new execution has a new task; one that goes on after a pause has the old one."""
    return context if context.state.steps else context.with_state(with_task_noted(context.state))


def _stands_as_final(state: AgentState, step: AgentStep) -> bool:
    """Whether the run would end with this answer; others may have sent it back or stopped."""
    execution = state.execution
    is_open = execution is not None and not (execution.signals or execution.continue_requests)
    is_final = step.step_type is StepType.FINAL_RESPONSE
    return is_final and is_open and state.scope.signal is None


def _was_rejected(step: AgentStep) -> bool:
    return step.metadata.get(CRITIQUE, {}).get("approved") is False


def _feedback_message(state: AgentState, feedback: str) -> Message:
    owner = state.agent_id if state.execution is None else state.execution.id
    return Message.user(
        f"A reviewer did not accept your answer: {feedback}\n\nPut this right and give the whole "
        "answer again, without a word about the review.",
        id=f"{owner}:{state.step_number}:critique",
        metadata={"source": SOURCE},
    )
