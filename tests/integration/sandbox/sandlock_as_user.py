"""Run by a test as a normal user: says "confined", or what was not."""

import asyncio
import subprocess
import tempfile
from pathlib import Path

from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import SandboxResult
from stepwell.sandbox.sandlock import SandlockSandbox


def run(policy: ExecutionPolicy, *argv: str) -> SandboxResult:
    return asyncio.run(SandlockSandbox().run(argv, policy))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work, secret = Path(folder, "work"), Path(folder, "secret")
        work.mkdir()
        secret.write_text("sekret")
        secret.chmod(0o600)
        policy = ExecutionPolicy.in_(work, timeout=20, max_memory=300_000_000)
        with subprocess.Popen(["sleep", "60"]) as other:
            script = (
                f"cat {secret}; echo x > {secret}; chmod 777 {secret}; kill -9 {other.pid};"
                f"cat /proc/{other.pid}/environ; setsid sleep 61 & echo ok > inside;"
                "chmod 700 inside"
            )
            result = run(policy, "bash", "-c", script)
            survived = other.poll() is None
            other.kill()
        assert survived, "a process outside was killed"
        assert result.stdout == "", result
        assert secret.read_text() == "sekret"
        assert secret.stat().st_mode & 0o777 == 0o600
        assert (work / "inside").read_text() == "ok\n", result
        assert (work / "inside").stat().st_mode & 0o777 == 0o700, result
        assert "MemoryError" in run(policy, "python3", "-c", "bytearray(900_000_000)").stderr
    print("confined")


main()
