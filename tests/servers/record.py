"""Records what aimock and llmock send, byte by byte: python -m tests.servers.record.

Writes tests/recordings/<wire format>/<server>_<case>.sse (streamed) and .json (plain). The files
named doc_* beside them are written by hand after the providers' documentation and stay.
"""

from pathlib import Path
from typing import Any

import httpx2

from tests.servers.aimock_server import Aimock, aimock_running
from tests.servers.llmock_server import Llmock, llmock_running

RECORDINGS = Path(__file__).parent.parent / "recordings"
WIRES = ("chat", "responses", "anthropic", "gemini")
MODELS = {
    "chat": "gpt-5-mini",
    "responses": "gpt-5-mini",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
}
PROMPTS = {
    "text": "say hello",
    "tool_call": "weather in Oslo",
    "parallel_tool_calls": "Oslo and Lima",
    "text_and_tool_call": "say what you do, then do it",
    "thinking": "think first, then answer",
    "thinking_and_tool_call": "think first, then call",
    "length": "go on and on",
    "content_filter": "something filtered",
}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
    "required": ["city"],
}
TOOL = {"name": "get_weather", "description": "Looks the weather up."}


def request(wire: str, prompt: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """Path below the base URL and body of one request that offers the weather tool."""
    model = MODELS[wire]
    said = {"role": "user", "content": prompt}
    if wire == "chat":
        tool = {"type": "function", "function": {**TOOL, "parameters": PARAMETERS}}
        body = {"model": model, "messages": [said], "tools": [tool], "stream": stream}
        return "/chat/completions", body | (
            {"stream_options": {"include_usage": True}} if stream else {}
        )
    if wire == "responses":
        tool = {"type": "function", **TOOL, "parameters": PARAMETERS}
        return "/responses", {"model": model, "input": [said], "tools": [tool], "stream": stream}
    if wire == "anthropic":
        tool = {**TOOL, "input_schema": PARAMETERS}
        body = {"model": model, "max_tokens": 500, "messages": [said], "tools": [tool]}
        return "/messages", body | {"stream": stream}
    declared = {"functionDeclarations": [{**TOOL, "parameters": PARAMETERS}]}
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    contents = [{"role": "user", "parts": [{"text": prompt}]}]
    return f"/models/{model}:{verb}", {"contents": contents, "tools": [declared]}


def headers(wire: str) -> dict[str, str]:
    """What a provider of this format asks of every request."""
    if wire == "anthropic":
        return {"x-api-key": "test", "anthropic-version": "2023-06-01"}
    return {"x-goog-api-key": "test"} if wire == "gemini" else {"authorization": "Bearer test"}


def record(server: Aimock | Llmock, name: str, wire: str, prompt: str, *, stream: bool) -> None:
    """Asks once and writes the bytes of the answer."""
    path, body = request(wire, prompt, stream=stream)
    answer = httpx2.post(server.base_url(wire) + path, json=body, headers=headers(wire))
    answer.raise_for_status()
    folder = RECORDINGS / wire
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.{'sse' if stream else 'json'}").write_bytes(answer.content)


def script_llmock(llmock: Llmock, case: str) -> None:
    """Makes llmock answer the next request as the case's name says."""
    oslo, lima = {"city": "Oslo", "unit": "celsius"}, {"city": "Lima", "unit": "celsius"}
    if case == "text":
        llmock.reply("Hello! Grüße, こんにちは 👋")
    elif case == "tool_call":
        llmock.call_tool("get_weather", oslo)
    elif case == "parallel_tool_calls":
        llmock.call_tool("get_weather", oslo, lima)
    elif case == "text_and_tool_call":
        llmock.call_tool("get_weather", oslo, text="I look it up first.")
    else:
        llmock.reply("Once upon a time", finish_reason=case)


def main() -> None:
    """Makes all recordings anew."""
    each = [(wire, stream) for wire in WIRES for stream in (True, False)]
    with aimock_running() as aimock:
        for wire, stream in each:
            for case, prompt in PROMPTS.items():
                record(aimock, f"aimock_{case}", wire, prompt, stream=stream)
    with llmock_running() as llmock:
        for wire, stream in each:
            for case in (case for case in PROMPTS if "thinking" not in case):
                llmock.reset()
                script_llmock(llmock, case)
                record(llmock, f"llmock_{case}", wire, PROMPTS[case], stream=stream)


if __name__ == "__main__":
    main()
