"""``stepwell init``: the project that it makes runs, as it is."""

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result

from stepwell.app.scaffold import project_files
from stepwell.cli.init import command
from stepwell.errors import ConfigurationError

PROGRAM = "from stepwell.cli.main import main; main()"


def made(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def files_in(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_makes_all_files_and_says_what_comes_next(tmp_path: Path) -> None:
    done = made("my agent")
    assert done.exit_code == 0
    assert files_in(tmp_path / "my agent") == project_files()
    assert set(project_files()) == {
        *(".gitignore", "README.md", "agent.py", "money.py", "scripted.py", "stepwell.toml"),
        *("skills/money/SKILL.md", "test_agent.py"),
    }
    assert done.stdout.splitlines() == [f"my agent/{name}" for name in project_files()]
    for step in ("cd 'my agent'", "stepwell serve", "stepwell chat", "pytest"):
        assert step in done.stderr


def test_the_current_folder_needs_no_cd(tmp_path: Path) -> None:
    done = made()
    assert files_in(tmp_path) == project_files()
    assert "cd " not in done.stderr


def test_nothing_is_written_over_and_nothing_is_half_made(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    (tmp_path / "README.md").symlink_to("nowhere")
    with pytest.raises(ConfigurationError, match=r"already: README.md, agent.py\. Nothing"):
        made()
    assert files_in(tmp_path) == {"agent.py": "mine"}


def test_force_writes_over_them(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    (tmp_path / "other.py").write_text("mine too")
    assert made("--force").exit_code == 0
    assert files_in(tmp_path) == {**project_files(), "other.py": "mine too"}


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "victim").write_text("mine")
    project = tmp_path / "project"
    project.mkdir()
    (project / "agent.py").symlink_to(tmp_path / "victim")
    (project / "money.py").hardlink_to(tmp_path / "victim")
    (project / "README.md").symlink_to(tmp_path / "made by the link")
    assert made("project", "--force").exit_code == 0
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "made by the link").exists()
    assert files_in(project) == project_files()
    assert not [path for path in project.rglob("*") if path.is_symlink()]

    other = tmp_path / "other"
    other.mkdir()
    (other / "skills").symlink_to(tmp_path / "elsewhere")
    for arguments in (["other"], ["other", "--force"]):
        with pytest.raises(ConfigurationError, match=r"other/skills is a link.*Nothing was"):
            made(*arguments)
    assert [path.name for path in other.iterdir()] == ["skills"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made("link")
    assert files_in(tmp_path / "real") == project_files()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigurationError, match="taken is a file"):
        made("taken")


def test_its_own_tests_pass(tmp_path: Path) -> None:
    made("project")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:llmock"],
        cwd=tmp_path / "project",
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_it_is_served_and_answers_without_a_key(tmp_path: Path) -> None:
    made("project")
    server = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "--port", "0"],
        cwd=tmp_path / "project",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        said = server.stdout.readline()
        assert said.startswith("Stepwell serves money on http://127.0.0.1:")
        root = said.split()[-1]
        with httpx2.Client(base_url=root, timeout=90, trust_env=False) as client:
            agent = client.get("/agent/agents").json()["items"][0]
            assert agent["model"].startswith("scripted")
            body = {"content": agent["examples"][0]}
            sent = client.post("/agent/messages", json=body).json()
            session, execution = sent["session"]["id"], sent["execution"]["id"]
            client.get(f"/agent/sessions/{session}/events?after=0&execution={execution}")
            ended = client.get(f"/agent/executions/{execution}").json()
        assert ended["status"] == "completed"
        assert "**25.00 USD**" in ended["output"]
    finally:
        server.terminate()
        server.communicate(timeout=90)


def test_a_model_in_its_configuration_takes_the_place_of_the_script(tmp_path: Path) -> None:
    made("project")
    program = "import agent; print(agent.app.agents.get('money').config['model'])"
    for setting, model in (("", "scripted"), ('model = "ollama:qwen3"', "ollama:qwen3")):
        toml = tmp_path / "project" / "stepwell.toml"
        toml.write_text(f"{setting}\n{project_files()['stepwell.toml']}")
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path / "project",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.strip() == model, done.stderr
