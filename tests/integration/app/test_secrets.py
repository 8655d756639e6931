"""The secret beside the database: made once, and only read where nobody else could."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepwell.app.app_secret import with_app_secret
from stepwell.errors import ConfigurationError
from stepwell.server.settings import ServerSettings

KNOWN = "a secret that somebody else knows as well"


def secret_of(folder: Path) -> str:
    return with_app_secret(ServerSettings(), f"sqlite:///{folder}/a.db").app_secret


def test_all_who_start_at_the_same_time_have_the_same(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        with ThreadPoolExecutor(4) as pool:
            found = set(pool.map(secret_of, [folder] * 4))
        assert len(found) == 1
        assert os.listdir(folder) == ["a.db.secret"]
        assert (folder / "a.db.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_one_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "a.db.secret"
    file.write_text(KNOWN)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"a\.db\.secret can be read or changed"):
        secret_of(tmp_path)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_not_followed(tmp_path: Path, is_there: bool) -> None:
    known = tmp_path / "known"
    if is_there:
        known.write_text(KNOWN)
        known.chmod(0o600)
    (tmp_path / "a.db.secret").symlink_to(known)
    with pytest.raises(ConfigurationError, match=r"can't create or read .*a\.db\.secret"):
        secret_of(tmp_path)
    assert known.exists() is is_there


@pytest.mark.parametrize("text", ["", "short", "x" * 31])
def test_a_file_without_a_secret_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.db.secret"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="contains no secret"):
        secret_of(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_one_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.db.secret"
    file.write_text(KNOWN)
    file.chmod(0o600)
    os.chown(file, 65534, 65534)
    with pytest.raises(ConfigurationError, match="not a file of the current user"):
        secret_of(tmp_path)
