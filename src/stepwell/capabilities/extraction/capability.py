"""``UseStructuredOutputs``: the capability that adds the ``extract_data`` tool."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.extraction.schemas import SchemaRegistry, StructuredOutputPolicy
from stepwell.capabilities.extraction.tool import StructuredOutputTool
from stepwell.errors import ConfigurationError
from stepwell.models import Model
from stepwell.models.attempts import check_model
from stepwell.parameters import check_kind, check_text

DEFAULT_POLICY = StructuredOutputPolicy()


class UseStructuredOutputs:
    """Adds ``extract_data``, which turns text into data that fits a schema and can store it.

    The data is extracted by ``model`` (an object or a name), else by the policy's preset, else by
    the agent's own model.

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
        self._policy = DEFAULT_POLICY if policy is None else policy
        check_kind(self._policy, "policy", StructuredOutputPolicy)
        self._model = model
        if not self._schemas:
            raise ConfigurationError(
                "UseStructuredOutputs needs at least one schema. SchemaRegistry.register returns a "
                "new registry, so write schemas = SchemaRegistry().register('lead', LeadForm)"
            )
        if model is not None and self._policy.llm_preset is not None:
            raise ConfigurationError(
                f"UseStructuredOutputs got a model, but its policy has llm_preset "
                f"{self._policy.llm_preset!r}; set only one of them"
            )
        if isinstance(model, str):
            check_text(model, "model")
        elif model is not None:
            check_model(model, "UseStructuredOutputs")

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the tool, added late if its model depends on the complete plan."""
        if self._model is not None and not isinstance(self._model, str):
            return plan.with_tools(StructuredOutputTool(self._schemas, self._model, self._policy))
        return plan.when_complete(self._add_tool)

    def _add_tool(self, plan: AgentPlan) -> AgentPlan:
        given = self._model if self._model is not None else self._policy.llm_preset
        asked = plan.asked_apart(given, "UseStructuredOutputs")
        if asked is None:
            return plan
        model, own = asked
        policy = replace(self._policy, settings=self._policy.settings.over(own))
        return plan.with_tools(StructuredOutputTool(self._schemas, model, policy))
