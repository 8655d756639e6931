"""The test servers themselves: they answer, break off and start anew as they promise."""

import asyncio
import contextlib
import re
import subprocess
import sys
import threading

import httpx2
import pytest

from tests.servers.byte_server import FOREVER, Answer, ByteServer, Ending, Framing
from tests.servers.record import WIRES, headers, request
from tests.servers.server_process import ServerDidNotStart, running

SAID = b"data: one\n\ndata: two\n\n"


async def test_the_byte_server_sends_the_script_and_keeps_the_requests(byte_server):
    byte_server.script(
        Answer.json({"n": 1}, status=429, retry_after="2"), Answer.sse(SAID[:5], SAID[5:])
    )
    async with httpx2.AsyncClient() as client:
        first = await client.post(byte_server.url + "/a?b=c", json={"x": "ü"}, headers={"K": "v"})
        second = await client.get(byte_server.url)
        third = await client.get(byte_server.url)

    assert (first.status_code, first.json(), first.headers["retry-after"]) == (429, {"n": 1}, "2")
    assert (second.content, third.content) == (SAID, SAID)
    asked = byte_server.requests[0]
    assert (asked.method, asked.path, asked.json, asked.headers["k"]) == (
        "POST",
        "/a?b=c",
        {"x": "ü"},
        "v",
    )
    assert len(byte_server.requests) == 3


@pytest.mark.parametrize("framing", list(Framing))
async def test_every_framing_brings_the_whole_body(byte_server, framing):
    whole = Answer(pieces=(SAID,), framing=framing)
    byte_server.script(whole, whole.trickled(3, 0.001))
    async with httpx2.AsyncClient() as client:
        assert (await client.get(byte_server.url)).content == SAID
        assert (await client.get(byte_server.url)).content == SAID


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer.sse(SAID).cut_at(7), httpx2.RemoteProtocolError),
        (Answer.sse(SAID).cut_at(7, Ending.RESET), httpx2.ReadError),
        (Answer.json(SAID).cut_at(7), httpx2.RemoteProtocolError),
        (Answer(silent=True, ending=Ending.EOF), httpx2.RemoteProtocolError),
        (Answer(silent=True, ending=Ending.RESET), httpx2.ReadError),
        (Answer.sse(SAID).cut_at(7, Ending.HANG), httpx2.ReadTimeout),
        (Answer.sse(SAID[:3], FOREVER, SAID[3:]), httpx2.ReadTimeout),
        (Answer.never(), httpx2.ReadTimeout),
    ],
)
async def test_a_body_breaks_off_as_scripted(byte_server, answer, error):
    byte_server.script(answer)
    got: list[bytes] = []

    async def ask() -> None:
        seconds = 3.0 if error is httpx2.ReadTimeout else 90.0
        async with (
            httpx2.AsyncClient(timeout=seconds) as client,
            client.stream("GET", byte_server.url) as response,
        ):
            # A plain loop keeps what came before the error.
            async for piece in response.aiter_raw():
                got.append(piece)  # noqa: PERF401

    with pytest.raises(error):
        await ask()
    assert len(b"".join(got)) == (0 if answer.silent else answer.cut or 3)


async def test_a_clean_end_of_an_unframed_body_looks_whole_to_the_client(byte_server):
    byte_server.script(Answer(pieces=(SAID,), framing=Framing.CLOSE).cut_at(7))
    async with httpx2.AsyncClient() as client:
        assert (await client.get(byte_server.url)).content == SAID[:7]


async def test_the_byte_server_counts_clients_that_go_away_and_ends_while_one_waits():
    async with ByteServer(Answer.never()) as server:
        async with httpx2.AsyncClient() as client:
            waiting = asyncio.ensure_future(client.get(server.url))
            await server.until(lambda: server.requests)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await server.until(lambda: server.disconnects)
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(server.url)


@pytest.mark.parametrize("wire", WIRES)
def test_aimock_answers_every_format_and_forgets_what_a_test_loaded(aimock, wire):
    path, body = request(wire, "weather in Oslo", stream=False)
    address = aimock.base_url(wire) + path
    aimock.load({"match": {"userMessage": "weather"}, "response": {"content": "only now"}})
    assert "only now" in httpx2.post(address, json=body, headers=headers(wire)).text
    aimock.fail_next(500)
    assert httpx2.post(address, json=body, headers=headers(wire)).status_code == 500
    assert [entry["response"]["status"] for entry in aimock.journal()] == [200, 500]

    aimock.reset()
    assert aimock.journal() == []
    assert "get_weather" in httpx2.post(address, json=body, headers=headers(wire)).text


@pytest.mark.parametrize("wire", WIRES)
def test_llmock_breaks_as_told_and_tells_what_the_client_did_wrong(llmock, wire):
    path, body = request(wire, "hello", stream=True)
    llmock.rate_limit(retry_after=1.0)
    llmock.reply("fine again")
    address = llmock.base_url(wire) + path
    refused = httpx2.post(address, json=body, headers=headers(wire))
    answered = httpx2.post(address, json=body, headers=headers(wire))

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "fine" in answered.text
    assert [finding.split(":")[0] for finding in llmock.findings()] == ["retry_after_ignored"]
    llmock.reset()
    assert llmock.findings() == llmock.requests() == []


def test_a_server_that_ends_at_once_shows_what_it_said():
    command = [sys.executable, "-c", "raise SystemExit('port taken')"]
    with (
        pytest.raises(ServerDidNotStart, match=r"ended with code 1; it said:\nport taken"),
        running("broken", command, re.compile("(never)")),
    ):
        pass


def test_a_server_that_says_no_address_is_given_up_and_ended():
    # A shell, since a new Python may take longer to say anything than is waited here.
    command = ["sh", "-c", "echo thinking; exec sleep 60"]
    with (
        pytest.raises(ServerDidNotStart, match=r"no address in 1.5 s; it said:\nthinking"),
        running("slow", command, re.compile("(never)"), start_seconds=1.5),
    ):
        pass


@pytest.mark.parametrize("server", ["aimock", "llmock"])
def test_a_killed_test_run_leaves_no_server_behind(server, request):
    if server == "aimock":
        request.getfixturevalue("aimock_process")
    code = (
        f"from tests.servers.{server}_server import {server}_running\n"
        f"with {server}_running() as started:\n"
        "    print(started.url, flush=True)\n"
        "    import time; time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        assert httpx2.get(url + "/health").is_success
        run.kill()

    def asked_again_and_again() -> None:
        for _ in range(3000):
            # A server that ends while it is asked breaks off its answer; the next ask tells more.
            with contextlib.suppress(httpx2.ReadError, httpx2.RemoteProtocolError):
                httpx2.get(url + "/health")
            threading.Event().wait(0.01)

    with pytest.raises(httpx2.ConnectError):
        asked_again_and_again()
