"""Runs commands in docker or podman containers, one container per command.

Uses only the command line program, and only if its ``info`` command works.
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
COMMAND_SECONDS = 60.0
CREATION_SECONDS = 0.3
"""How long a service may take to create a container after the program was killed."""
PROGRAM_FAILED = 125
"""Exit code of docker and podman for their own failures; a command may return it too."""
MIN_MEMORY = 6 * 1024 * 1024
_INFO_FORMAT: Mapping[ContainerProgram, str] = {
    "docker": "{{.SecurityOptions}}",
    "podman": "rootless={{.Host.Security.Rootless}}",
}
_ROOTLESS: Mapping[ContainerProgram, str] = {"docker": "name=rootless", "podman": "rootless=true"}


class ContainerSandbox:
    """Confines commands in ``docker`` or ``podman`` containers.

    The image must exist locally: nothing is downloaded. ``environment`` is for the program itself,
    for example ``DOCKER_HOST``; commands do not see it.

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
                f"unknown container program {program!r}; use 'docker' or 'podman'"
            )
        if not image or image.startswith("-") or image.split() != [image]:
            raise ConfigurationError(
                f"{image!r} is not a valid image; use a name such as {DEFAULT_IMAGE!r}"
            )
        self._program: ContainerProgram = program
        self._image = image
        self._environment = dict(environment or {})
        self._rootless: bool | None = None
        self._executable: Program | None = None

    @property
    def name(self) -> str:
        """The name for messages."""
        return self._program

    def unavailable(self) -> str | None:
        """Return why it can't be used here, or None. Calls the program, which may take a while."""
        self._executable = self._executable or next(iter(find_programs(self._program)), None)
        if self._executable is None:
            return f"there is no program {self._program} on the path; install it"
        try:
            answer = subprocess.run(
                [self._executable.path, "info", "--format", _INFO_FORMAT[self._program]],
                executable=self._executable.executable,
                env=self._program_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=INFO_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self._program} info does not answer ({error}); start its service"
        if answer.returncode != 0:
            lines = answer.stderr.decode(errors="replace").strip().splitlines()
            message = lines[-1] if lines else f"exit code {answer.returncode}"
            return f"{self._program} info fails ({message}); start its service"
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
        """Run a command to its end; see ``Sandbox.run``."""
        check_command(argv)
        _check_enforceable(policy)
        if self._rootless is None:
            reason = await asyncio.to_thread(self.unavailable)
            if reason is not None:
                raise SandboxError(f"{reason}; or choose another sandbox")
        guard_imports(policy)
        container = f"stepwell-{new_id()}"
        async with private_folder() as folder:
            files = _RunFiles(folder, policy)
            launch = self._launch(
                "run", *self._options(policy, files, container, bool(stdin)), self._image, *argv
            )
            result = await run_process(
                launch,
                policy,
                stdin=stdin,
                on_output=on_output,
                sweep=lambda: self._remove_container(container, files),
            )
            self._check_started(result, files)
        return result

    def _launch(self, *arguments: str) -> Launch:
        return Launch(
            program=self._executable,
            argv=(
                self._executable.path if self._executable is not None else self._program,
                *arguments,
            ),
            environment=self._program_environment(),
            directory=Path("/"),
            # The service starts the command, so this process has no descendants to supervise.
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
        self, policy: ExecutionPolicy, files: "_RunFiles", container: str, with_stdin: bool
    ) -> Iterator[str]:
        yield from ("--rm", "--init", "--pull", "never", "--name", container)
        yield from ("--cidfile", str(files.container_id), "--env-file", str(files.variables))
        yield from ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777", "--entrypoint", "")
        yield from ("--user", self._user(), "--workdir", str(policy.directory))
        if self._program == "podman" and self._rootless:
            # Makes the owner of the directory the command's user.
            yield from ("--userns", "keep-id")
        if not policy.network:
            yield from ("--network", "none")
        if policy.max_processes is not None:
            # One more for the process of `--init`.
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
            mask = "type=tmpfs" if path.is_dir() else "type=bind,source=/dev/null"
            yield from ("--mount", f"{mask},target={path},readonly")

    def _user(self) -> str:
        # In rootless docker, root of the container is the normal user.
        if self._program == "docker" and self._rootless:
            return "0:0"
        return f"{os.getuid()}:{os.getgid()}"

    async def _remove_container(self, container: str, files: "_RunFiles") -> None:
        """Kill and remove what is left of a container; after a normal end nothing is."""
        if not files.container_id.exists():
            await asyncio.sleep(CREATION_SECONDS)
        killed = await self._run_program(files, "kill", container)
        if killed.exit_code == 0 or "no such container" not in _normalize(killed.stderr):
            await self._run_program(files, "rm", "--force", container)

    async def _run_program(self, files: "_RunFiles", *arguments: str) -> SandboxResult:
        limits = ExecutionPolicy(directory=files.folder, timeout=COMMAND_SECONDS)
        return await run_process(self._launch(*arguments), limits)

    def _check_started(self, result: SandboxResult, files: "_RunFiles") -> None:
        if result.exit_code != PROGRAM_FAILED:
            return
        is_own_message = _normalize(result.stderr).startswith((f"{self._program}: ", "error: "))
        if files.container_id.exists() and not is_own_message:
            return
        message = result.stderr.strip()
        if "no such image" in _normalize(message) or "image not known" in _normalize(message):
            message = (
                f"the image {self._image} does not exist; run {self._program} pull {self._image}"
            )
        raise SandboxError(f"{self._program} can't run the command: {message}")


class _RunFiles:
    """Files for what the program's command line must not show, and for the container id."""

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
            f"containers can't take the variable {name}, because its value has several lines; "
            "write it to a file in the directory, or use another sandbox"
        )
    return f"{name}={value}\n"


def _check_enforceable(policy: ExecutionPolicy) -> None:
    protection = protect(policy)
    paths = (policy.directory, *policy.writable, *policy.readable)
    paths = (*paths, *protection.pinned, *protection.read_only, *hidden_paths(policy))
    check_in_place(*paths)
    for path in paths:
        if "," in str(path) or '"' in str(path):
            raise SandboxError(
                f"containers can't mount {path}, because of the comma or quote in it; rename it"
            )
    if policy.max_memory is not None and policy.max_memory < MIN_MEMORY:
        raise SandboxError(
            f"containers need max_memory to be at least {MIN_MEMORY}, not {policy.max_memory}"
        )


def _normalize(text: str) -> str:
    return text.strip().lower().replace("no container with name", "no such container")
