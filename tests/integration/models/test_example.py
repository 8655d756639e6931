"""The example for any provider runs by name, with keys and addresses from the environment."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.servers.llmock_server import Llmock

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_step_loop.py"
KEY = "sk-canary-7f3a91"


async def run_example(environment: dict[str, str], *names: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", str(EXAMPLE), *names),
        env={"PATH": "", "PYTHONIOENCODING": "utf-8", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.fixture
def environment(llmock: Llmock) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "OPENAI_BASE_URL": llmock.base_url("chat"),
        "ANTHROPIC_BASE_URL": llmock.base_url("anthropic"),
        "GOOGLE_GEMINI_BASE_URL": llmock.base_url("gemini"),
    }


async def test_the_loop_runs_on_all_four_formats_by_name(environment: dict[str, str]) -> None:
    names = ("openai-chat", "openai", "anthropic", "gemini:gemini-2.5-flash")

    status, output = await run_example(environment, *names)

    assert status == 0, output
    assert output.count("plain     completed in 2 steps") == 4
    assert output.count("[get_weather: 21 degrees and sunny in ") == 4
    assert "0.000000 dollars" not in output
    assert KEY not in output


async def test_a_missing_key_is_named_and_the_others_are_tried(environment: dict[str, str]) -> None:
    del environment["ANTHROPIC_API_KEY"]

    status, output = await run_example(environment, "anthropic", "openai")

    assert status == 1
    assert "set the environment variable ANTHROPIC_API_KEY" in output
    assert "plain     completed in 2 steps" in output
