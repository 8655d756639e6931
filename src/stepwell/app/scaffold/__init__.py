"""The project that ``stepwell init`` makes: its files, and how they get into a folder."""

from stepwell.app.scaffold.project import make_project, project_files

__all__ = ["make_project", "project_files"]
