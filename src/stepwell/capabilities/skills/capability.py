"""``UseSkills``: adds the tool, the list of skills in the prompt, and the enforcement hooks."""

from collections.abc import Mapping

from msgspec.structs import replace

from stepwell.agent.budget_pool import with_turns_noted
from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.skills.active import active_skill_hooks
from stepwell.capabilities.skills.library import SkillLibrary
from stepwell.capabilities.skills.shell import ShellPreprocessing
from stepwell.capabilities.skills.texts import announcement, format_skill_list
from stepwell.capabilities.skills.tool import LoadSkillTool
from stepwell.messages import Message
from stepwell.parameters import check_integer

DEFAULT_LIST_CHARS = 8_000
AFTER_OTHER_CHANGES = 10
"""After other changes of the plan, which may still add tools."""


class UseSkills:
    """Lets the model load the skills of a library with ``load_skill``.

    The prompt starts with a list of their names and descriptions of at most ``list_chars``
    characters (0 means no list). The tool restrictions of a loaded skill hold until the model
    deactivates it or loads another, or the execution ends; a model named by the skill answers
    meanwhile. ``models`` maps words such as ``sonnet`` to models. Commands in skills run only if
    ``shell`` is set.

    >>> UseSkills(SkillLibrary(), models={"sonnet": "claude-sonnet-4-5"}).tool.name
    'load_skill'
    """

    def __init__(
        self,
        library: SkillLibrary,
        *,
        shell: ShellPreprocessing | None = None,
        models: Mapping[str, str] | None = None,
        list_chars: int = DEFAULT_LIST_CHARS,
    ) -> None:
        check_integer(list_chars, "list_chars", least=0)
        self.tool = LoadSkillTool(library, shell=shell, models=models)
        self._list_chars = list_chars

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the tool, the list and the hooks."""
        skills = self.tool.loadable_skills
        if skills and self._list_chars:
            text = announcement(format_skill_list(skills, self._list_chars))
            plan = plan.with_context_messages(Message.system(text, id="skills"))
        plan = plan.with_tools(self.tool)
        for hook in active_skill_hooks():
            plan = plan.with_hook(hook)
        return plan.when_complete(self._bind_tool, order=AFTER_OTHER_CHANGES)

    def _bind_tool(self, plan: AgentPlan) -> AgentPlan:
        """Bind the tool to the complete plan, and let forks spend what is left of the budget."""
        if any(known.is_fork for known in self.tool.loadable_skills):
            plan = with_turns_noted(plan)
        bound = self.tool.bound_to(plan)
        tools = tuple(bound if tool is self.tool else tool for tool in plan.tools)
        return replace(plan, tools=tools)
