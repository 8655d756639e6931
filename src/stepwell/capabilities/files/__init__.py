"""File tools that never leave their base directory: read, write, edit, search and list."""

from stepwell.capabilities.files.capability import UseFileTools
from stepwell.capabilities.files.confined import ConfinedDirectory
from stepwell.capabilities.files.editing import EditFileTool
from stepwell.capabilities.files.listing import ListDirTool
from stepwell.capabilities.files.policy import FilePolicy
from stepwell.capabilities.files.reading import ReadFileTool
from stepwell.capabilities.files.searching import SearchFilesTool
from stepwell.capabilities.files.writing import WriteFileTool

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
