"""Commands in containers of docker or podman, one container for each, gone with the command.

Only the command line program is used, and only where its ``info`` answers.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from stepwell.errors import ConfigurationError, SandboxError
from stepwell.ids import new_id
from stepwell.sandbox.environment import PATH, command_environment
from stepwell.sandbox.handover import check_in_place
from stepwell.sandbox.host.import_guard import guard_imports
from stepwell.sandbox.host.program import Program, find_programs
from stepwell.sandbox.host.protection import hidden_paths, protect
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.processes import Launch, check_command, run_process
from stepwell.sandbox.sandbox import OutputListener, SandboxResult

ContainerProgram = Literal["docker", "podman"]
DEFAULT_IMAGE = "python:3-slim"
INFO_SECONDS = 10.0
ORDER_SECONDS = 60.0
LATE_SECONDS = 0.3
"""How long a service may take to finish making a container whose maker was killed."""
NOT_RUN = 125
"""What docker and podman exit with if they themselves failed; the command may do so too."""
SMALLEST_MEMORY = 6 * 1024 * 1024
_INFO_FORMAT: Mapping[ContainerProgram, str] = {
    "docker": "{{.SecurityOptions}}",
    "podman": "rootless={{.Host.Security.Rootless}}",
}
_ROOTLESS: Mapping[ContainerProgram, str] = {"docker": "name=rootless", "podman": "rootless=true"}


class ContainerSandbox:
    """Confines commands in containers of ``docker`` or ``podman``.

    The image must be there already: nothing is downloaded. ``environment`` is for the program
    itself, such as ``DOCKER_HOST``; commands do not see it.

    >>> ContainerSandbox("podman", image="debian:stable-slim").name
    'podman'
    """

    def __init__(
        self,
        program: ContainerProgram = "docker",
        *,
        image: str = DEFAULT_IMAGE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if program not in get_args(ContainerProgram):
            raise ConfigurationError(
                f"there is no container program {program!r} here; write 'docker' or 'podman'"
            )
        if not image or image.startswith("-") or image.split() != [image]:
            raise ConfigurationError(
                f"{image!r} is not an image; give a name such as {DEFAULT_IMAGE!r}"
            )
        self._program: ContainerProgram = program
        self._image = image
        self._environment = dict(environment or {})
        self._rootless: bool | None = None
        self._opened: Program | None = None

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return self._program

    def unavailable(self) -> str | None:
        """Why it can't be used on this machine, if so. Asks the program, which may take a while."""
        self._opened = self._opened or next(iter(find_programs(self._program)), None)
        if self._opened is None:
            return f"there is no program {self._program} on the path; install it"
        try:
            answer = subprocess.run(
                [self._opened.path, "info", "--format", _INFO_FORMAT[self._program]],
                executable=self._opened.executable,
                env=self._program_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=INFO_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self._program} info does not answer ({error}); start its service"
        if answer.returncode != 0:
            words = answer.stderr.decode(errors="replace").strip().splitlines()
            said = words[-1] if words else f"exit code {answer.returncode}"
            return f"{self._program} info fails ({said}); start its service"
        self._rootless = _ROOTLESS[self._program] in answer.stdout.decode(errors="replace")
        return None

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        """Run a command to its end. Raises ``SandboxError`` if it can't be confined so."""
        check_command(argv)
        _refuse_unenforceable(policy)
        if self._rootless is None:
            reason = await asyncio.to_thread(self.unavailable)
            if reason is not None:
                raise SandboxError(f"{reason}; or choose another sandbox")
        guard_imports(policy)
        container = f"stepwell-{new_id()}"
        async with private_folder() as folder:
            notes = _Notes(folder, policy)
            launch = self._launch(
                "run", *self._options(policy, notes, container, bool(stdin)), self._image, *argv
            )
            result = await run_process(
                launch,
                policy,
                stdin=stdin,
                on_output=on_output,
                sweep=lambda: self._end(container, notes),
            )
            self._refuse_if_not_run(result, notes)
        return result

    def _launch(self, *words: str) -> Launch:
        return Launch(
            program=self._opened,
            argv=(self._opened.path if self._opened is not None else self._program, *words),
            environment=self._program_environment(),
            directory=Path("/"),
            # Nothing of the command is beneath this process: the service started it.
            supervised=False,
        )

    def _program_environment(self) -> Mapping[str, str]:
        runtime = f"/run/user/{os.getuid()}"
        return {
            "PATH": PATH,
            "HOME": str(Path.home()),
            **({"XDG_RUNTIME_DIR": runtime} if Path(runtime).is_dir() else {}),
            **self._environment,
        }

    def _options(
        self, policy: ExecutionPolicy, notes: "_Notes", container: str, with_stdin: bool
    ) -> Iterator[str]:
        yield from ("--rm", "--init", "--pull", "never", "--name", container)
        yield from ("--cidfile", str(notes.container_id), "--env-file", str(notes.variables))
        yield from ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777", "--entrypoint", "")
        yield from ("--user", self._user(), "--workdir", str(policy.directory))
        if self._program == "podman" and self._rootless:
            # So that the command's user is the one the directory belongs to.
            yield from ("--userns", "keep-id")
        if not policy.network:
            yield from ("--network", "none")
        if policy.max_processes is not None:
            # One more for the process that `--init` adds.
            yield from ("--pids-limit", str(policy.max_processes + 1))
        if policy.max_memory is not None:
            yield from ("--memory", str(policy.max_memory))
            yield from ("--memory-swap", str(policy.max_memory))
        if with_stdin:
            yield "--interactive"
        protection = protect(policy)
        for path in dict.fromkeys((policy.directory, *policy.writable, *protection.pinned)):
            yield from ("--mount", f"type=bind,source={path},target={path}")
        for path in dict.fromkeys((*policy.readable, *protection.read_only)):
            yield from ("--mount", f"type=bind,source={path},target={path},readonly")
        for path in hidden_paths(policy):
            empty = "type=tmpfs" if path.is_dir() else "type=bind,source=/dev/null"
            yield from ("--mount", f"{empty},target={path},readonly")

    def _user(self) -> str:
        # In a docker service of a normal user, root of the container is that user.
        if self._program == "docker" and self._rootless:
            return "0:0"
        return f"{os.getuid()}:{os.getgid()}"

    async def _end(self, container: str, notes: "_Notes") -> None:
        """End and remove what is left of a container, which after a normal end is nothing."""
        if not notes.container_id.exists():
            await asyncio.sleep(LATE_SECONDS)
        ended = await self._ordered(notes, "kill", container)
        if ended.exit_code == 0 or "no such container" not in _folded(ended.stderr):
            await self._ordered(notes, "rm", "--force", container)

    async def _ordered(self, notes: "_Notes", *words: str) -> SandboxResult:
        limits = ExecutionPolicy(directory=notes.folder, timeout=ORDER_SECONDS)
        return await run_process(self._launch(*words), limits)

    def _refuse_if_not_run(self, result: SandboxResult, notes: "_Notes") -> None:
        if result.exit_code != NOT_RUN:
            return
        own_words = _folded(result.stderr).startswith((f"{self._program}: ", "error: "))
        if notes.container_id.exists() and not own_words:
            return
        said = result.stderr.strip()
        if "no such image" in _folded(said) or "image not known" in _folded(said):
            said = f"the image {self._image} is not there; {self._program} pull {self._image}"
        raise SandboxError(f"{self._program} can't run the command: {said}")


class _Notes:
    """Files that tell the program what its command line must not show, and it tells us."""

    def __init__(self, folder: Path, policy: ExecutionPolicy) -> None:
        self.folder = folder
        self.container_id = folder / "container"
        self.variables = folder / "variables"
        variables = command_environment(policy, home="/tmp", temporary="/tmp")
        lines = [_env_line(name, value) for name, value in variables.items()]
        self.variables.write_text("".join(lines), encoding="utf-8")


def _env_line(name: str, value: str) -> str:
    if "\n" in value or "\r" in value:
        raise SandboxError(
            f"containers can't be given the variable {name}, because its value has several lines; "
            "write it to a file in the directory, or use another sandbox"
        )
    return f"{name}={value}\n"


def _refuse_unenforceable(policy: ExecutionPolicy) -> None:
    protection = protect(policy)
    paths = (policy.directory, *policy.writable, *policy.readable)
    paths = (*paths, *protection.pinned, *protection.read_only, *hidden_paths(policy))
    check_in_place(*paths)
    for path in paths:
        if "," in str(path) or '"' in str(path):
            raise SandboxError(
                f"containers can't be given {path}, because of the comma or quote in it; rename it"
            )
    if policy.max_memory is not None and policy.max_memory < SMALLEST_MEMORY:
        raise SandboxError(
            f"containers need max_memory to be at least {SMALLEST_MEMORY}, not {policy.max_memory}"
        )


def _folded(text: str) -> str:
    return text.strip().lower().replace("no container with name", "no such container")
