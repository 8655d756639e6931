"""File tools confined to one base directory: read, write, edit, search and list."""

from stepwell.capabilities.files.capability import UseFileTools
from stepwell.capabilities.files.confined_directory import ConfinedDirectory
from stepwell.capabilities.files.edit_file import EditFileTool
from stepwell.capabilities.files.list_dir import ListDirTool
from stepwell.capabilities.files.policy import FilePolicy
from stepwell.capabilities.files.read_file import ReadFileTool
from stepwell.capabilities.files.search_files import SearchFilesTool
from stepwell.capabilities.files.write_file import WriteFileTool

__all__ = [
    "ConfinedDirectory",
    "EditFileTool",
    "FilePolicy",
    "ListDirTool",
    "ReadFileTool",
    "SearchFilesTool",
    "UseFileTools",
    "WriteFileTool",
]
