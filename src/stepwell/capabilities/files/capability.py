"""The capability that gives an agent tools for the files beneath one directory."""

from collections.abc import Iterable
from os import PathLike

from stepwell.agent.plan import AgentPlan, several
from stepwell.capabilities.files.confined_directory import ConfinedDirectory
from stepwell.capabilities.files.edit_file import EditFileTool
from stepwell.capabilities.files.file_tool import FileTool
from stepwell.capabilities.files.list_dir import ListDirTool
from stepwell.capabilities.files.policy import DEFAULT_POLICY, FilePolicy
from stepwell.capabilities.files.read_file import ReadFileTool
from stepwell.capabilities.files.search_files import SearchFilesTool
from stepwell.capabilities.files.write_file import WriteFileTool
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_flag, check_kind
from stepwell.tools import ToolEffect

FILE_TOOLS: tuple[type[FileTool], ...] = (
    ReadFileTool,
    WriteFileTool,
    EditFileTool,
    SearchFilesTool,
    ListDirTool,
)


class UseFileTools:
    """Adds ``read_file``, ``write_file``, ``edit_file``, ``search_files`` and ``list_dir``,
    confined to the base directory.

    ``read_only`` leaves out the tools that write; ``tools`` lists the tools to add by name.

        Agent(model, capabilities=[UseFileTools("project", read_only=True)])
    """

    def __init__(
        self,
        base_dir: str | PathLike[str],
        *,
        read_only: bool = False,
        tools: Iterable[str] | None = None,
        policy: FilePolicy = DEFAULT_POLICY,
    ) -> None:
        check_flag(read_only, "read_only")
        check_kind(policy, "policy", FilePolicy)
        offered = {
            kind.name: kind
            for kind in FILE_TOOLS
            if not read_only or kind.effect is ToolEffect.PURE
        }
        chosen = tuple(offered) if tools is None else several(tools, "tools")
        if unknown := [name for name in chosen if name not in offered]:
            when = " when read_only is set" if read_only else ""
            raise ConfigurationError(
                f"UseFileTools has no tool {', '.join(map(repr, unknown))}{when}. Available tools: "
                f"{', '.join(offered)}"
            )
        directory = ConfinedDirectory(base_dir)
        self.tools = tuple(offered[name](directory, policy) for name in dict.fromkeys(chosen))

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the file tools."""
        return plan.with_tools(*self.tools)
