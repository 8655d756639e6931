"""``UseSkills``: the tool, the list of skills in the prompt, and what enforces a loaded skill."""

from collections.abc import Mapping

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.agent.purse import with_turns_noted
from stepwell.capabilities.skills.active import active_skill_hooks
from stepwell.capabilities.skills.library import SkillLibrary
from stepwell.capabilities.skills.shell import ShellPreprocessing
from stepwell.capabilities.skills.texts import announcement, skill_list
from stepwell.capabilities.skills.tool import LoadSkillTool
from stepwell.errors import ConfigurationError
from stepwell.messages import Message

DEFAULT_LIST_CHARS = 8_000
WITH_ALL_TOOLS = 10
"""Behind the usual changes of a plan, which may still add tools."""


class UseSkills:
    """Lets the model load the skills of a library with ``load_skill``.

    The prompt begins with their names and descriptions, in at most ``list_chars`` characters (0
    leaves the list out). A loaded skill that allows some tools only is enforced until the model
    puts it down or loads another, or the execution ends; its model, if it names one, answers
    meanwhile. ``models`` says which model a word such as ``sonnet`` means. Commands in skills run
    only with ``shell``.

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
        if type(list_chars) is not int or list_chars < 0:
            raise ConfigurationError(f"list_chars must be 0 or more, got {list_chars!r}")
        self.tool = LoadSkillTool(library, shell=shell, models=models)
        self._list_chars = list_chars

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the tool, the list and the hooks."""
        offered = self.tool.offered
        if offered and self._list_chars:
            text = announcement(skill_list(offered, self._list_chars))
            plan = plan.with_context_messages(Message.system(text, id="skills"))
        plan = plan.with_tools(self.tool)
        for hook in active_skill_hooks():
            plan = plan.with_hook(hook)
        return plan.when_complete(self._bound, order=WITH_ALL_TOOLS)

    def _bound(self, plan: AgentPlan) -> AgentPlan:
        """The tool learns which tools it is offered beside, and forks are given what is left."""
        if any(known.is_fork for known in self.tool.offered):
            plan = with_turns_noted(plan)
        bound = self.tool.bound_to(plan)
        tools = tuple(bound if tool is self.tool else tool for tool in plan.tools)
        return replace(plan, tools=tools)
