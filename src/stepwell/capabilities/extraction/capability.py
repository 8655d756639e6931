"""``UseStructuredOutputs``: gives an agent the tool ``extract_data``."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.extraction.schemas import SchemaRegistry, StructuredOutputPolicy
from stepwell.capabilities.extraction.tool import StructuredOutputTool
from stepwell.errors import ConfigurationError
from stepwell.models import Model
from stepwell.models.attempts import refuse_what_is_no_model
from stepwell.parameters import check_kind, check_text

USUAL = StructuredOutputPolicy()


class UseStructuredOutputs:
    """The agent can turn text into data that fits one of these schemas, and store it in metadata.

    The model that extracts is ``model`` (an object or a name), else the policy's preset, else the
    agent's own.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> own = ScriptedModel([call("extract_data", input="Al, Bo", schema="names"), "Done."])
    >>> helper = ScriptedModel(['{"result": ["Al", "Bo"]}'])
    >>> use = UseStructuredOutputs(SchemaRegistry({"names": list[str]}), model=helper)
    >>> Agent(own, capabilities=[use]).run_sync("Who?").steps[0].step.tool_executions[0].value
    ['Al', 'Bo']
    """

    def __init__(
        self,
        schemas: SchemaRegistry | Mapping[str, Any],
        policy: StructuredOutputPolicy | None = None,
        *,
        model: Model | str | None = None,
    ) -> None:
        self._schemas = schemas if isinstance(schemas, SchemaRegistry) else SchemaRegistry(schemas)
        self._policy = USUAL if policy is None else policy
        check_kind(self._policy, "policy", StructuredOutputPolicy)
        self._model = model
        if not self._schemas:
            raise ConfigurationError(
                "UseStructuredOutputs needs a schema; register returns a new registry, so write "
                "schemas = SchemaRegistry().register('lead', LeadForm)"
            )
        if model is not None and self._policy.llm_preset is not None:
            raise ConfigurationError(
                f"UseStructuredOutputs got a model, and its policy the preset "
                f"{self._policy.llm_preset!r}; give one of the two"
            )
        if isinstance(model, str):
            check_text(model, "model")
        elif model is not None:
            refuse_what_is_no_model(model, "UseStructuredOutputs")

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the tool; what model it asks may only be known when the plan is whole."""
        if self._model is not None and not isinstance(self._model, str):
            return plan.with_tools(StructuredOutputTool(self._schemas, self._model, self._policy))
        return plan.when_complete(self._completed)

    def _completed(self, plan: AgentPlan) -> AgentPlan:
        given = self._model if self._model is not None else self._policy.llm_preset
        asked = plan.asked_apart(given, "UseStructuredOutputs")
        if asked is None:
            return plan
        model, own = asked
        policy = replace(self._policy, settings=self._policy.settings.over(own))
        return plan.with_tools(StructuredOutputTool(self._schemas, model, policy))
