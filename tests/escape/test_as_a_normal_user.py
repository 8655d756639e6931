"""The escapes by way of the host once more, as a user without any rights."""

from pathlib import Path

from tests.examples import is_long
from tests.integration.sandbox.test_as_a_normal_user import (
    folder,
    needs_root,
    needs_setpriv,
    run_as_normal_user,
)

__all__ = ["folder"]


@needs_root
@needs_setpriv
def test_the_host_executes_nothing_that_a_command_wrote(folder: Path) -> None:
    keyword = "" if is_long() else "changes_nothing or imports_nothing"
    run_as_normal_user(Path(__file__).with_name("test_host.py"), folder, keyword)
