"""The page of an execution: it opens with the stop, in the words of ``stepwell why``."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from stepwell.continuation import StopReason
from tests.browser.apps import STOPS
from tests.browser.conftest import NewPage
from tests.browser.serving import ROOT, Server, environment, serving, until

# The words of an element without signs that only decorate, whatever elements they are in.
WORDS = """(element) => {
  const copy = element.cloneNode(true);
  for (const sign of copy.querySelectorAll("[aria-hidden=true]")) sign.remove();
  return copy.textContent;
}"""


VOTES = "(rows) => rows.map((row) => row.dataset.vote)"


@pytest.fixture(scope="module")
def stopped(server: Server) -> dict[str, dict[str, Any]]:
    """An execution for every stop reason, as a real run left it."""
    sent = {reason: server.send("tell", f"stops-{reason}")["execution"]["id"] for reason in STOPS}
    cancelled = sent["user_requested"]
    until(lambda: _is_waiting(server, cancelled))
    server.post(f"agent/executions/{cancelled}/cancel", {"reason": "closed the tab"})
    return {reason: server.over(execution) for reason, execution in sent.items()}


def _is_waiting(server: Server, execution: str) -> bool:
    session = server.get(f"agent/executions/{execution}")["session_id"]
    return any("Calling wait" in each["content"] for each in server.messages(session))


def _whys(server: Server, executions: list[str]) -> dict[str, str]:
    ran = subprocess.run(
        (sys.executable, "-m", "tests.browser.whys", server.database, *executions),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


def _explanation(printed: str) -> list[str]:
    """The lines that explain the stop, of what `why` printed: between its heading and the steps."""
    explained = printed.partition("\n\n")[2].partition("\n\n")[0]
    lines = [line.strip() for line in explained.splitlines() if line.strip()]
    # How to answer in a terminal is for those who are in one.
    return [line for line in lines if not line.startswith("To answer in the terminal: ")]


def _bare(text: str) -> str:
    return "".join(text.split())


def _opened(page: Page, execution: str) -> None:
    page.evaluate("(id) => { location.hash = `#/x/${id}`; }", execution)
    expect(page.locator(f'[data-execution="{execution}"] [data-stop]')).to_be_visible()


def test_page_and_why_say_the_same_for_every_stop_reason(
    server: Server, new_page: NewPage, stopped: dict[str, dict[str, Any]]
) -> None:
    assert set(StopReason) <= set(STOPS)
    whys = _whys(server, [each["id"] for each in stopped.values()])
    page = new_page(server).page
    for reason, execution in stopped.items():
        lines = _explanation(whys[execution["id"]])
        assert len(lines) >= 2, whys[execution["id"]]
        trace = server.get(f"agent/executions/{execution['id']}/trace")
        assert [line.strip() for line in trace["stop"]["text"].splitlines()] == lines
        _opened(page, execution["id"])
        stop = page.locator("[data-stop]")
        expected = "steps_limit" if reason == "budget" else reason
        expect(stop).to_have_attribute("data-reason", expected)
        seen = _bare(stop.evaluate(WORDS))
        missing = [line for line in lines if _bare(line) not in seen]
        assert missing == [], f"{reason}: the page lacks lines of `stepwell why`"
        votes = [vote["criterion"] for vote in execution["decision"]["evaluations"]]
        rows = stop.locator("[data-vote]").evaluate_all(VOTES)
        assert sorted(rows) == sorted(votes)


def test_timeline_snapshots_events_and_subagents_are_all_there(
    server: Server, new_page: NewPage
) -> None:
    execution = server.ran("delegate it")
    watched = new_page(server, f"#/x/{execution['id']}")
    page = watched.page
    expect(page.locator("[data-stop]")).to_be_visible()
    _leads_back(page, execution["session_id"])
    expect(page.locator(".x-stop-top")).to_have_text("✓ Completed")
    # It began an attempt, as every execution does; no worker was lost.
    assert execution["attempt"] == 1
    expect(page.locator(".x-facts")).not_to_contain_text("Attempt")
    watched.shot("execution")
    expect(page.locator("[data-step]")).to_have_count(2)
    step = page.locator('[data-step="1"]')
    step.get_by_role("button").first.click()
    expect(step).to_contain_text("spawn_subagent")
    expect(step).to_contain_text("look at the basin")

    page.get_by_role("heading", name="Snapshots").scroll_into_view_if_needed()
    diff = page.locator("[data-diff]")
    expect(diff).to_contain_text("The surveyor is back.")
    # What the step added comes first.
    assert diff.locator("li").first.get_attribute("data-kind") == "added"
    expect(diff).not_to_contain_text("checksum")

    page.get_by_role("heading", name="Raw events").scroll_into_view_if_needed()
    events = page.locator("[data-event]")
    expect(events.first).to_be_attached()
    logged = server.get(f"agent/sessions/{execution['session_id']}")["last_seq"]
    expect(page.locator(f'[data-event="{logged}"]')).to_be_attached()
    events.last.locator("summary").click()
    expect(events.last).to_contain_text(execution["id"])
    watched.shot("execution-events")

    child = page.locator("[data-subagent]")
    expect(child).to_have_count(1)
    child.get_by_role("link").first.click()
    expect(page.locator("[data-stop]")).to_have_attribute("data-reason", "completed")
    assert execution["id"] not in page.evaluate("location.hash")
    expect(page.locator("[data-step]")).to_have_count(2)
    _leads_back(page, execution["session_id"])
    watched.shot("execution-subagent")
    parent = page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Parent")
    expect(parent).to_have_attribute("href", f"#/x/{execution['id']}")


def _leads_back(page: Page, session: str) -> None:
    back = page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="delegate it")
    expect(back).to_have_attribute("href", f"#/s/{session}")
    marked = page.locator(f'[data-session="{session}"] [aria-current]')
    expect(marked).to_have_attribute("aria-current", "true")
    expect(page).to_have_title(re.compile("^Execution: The run ended.* · delegate it · Stepwell$"))


def test_a_fork_says_where_it_begins(server: Server, new_page: NewPage) -> None:
    execution = server.ran("tell", "stops-steps_limit")
    forked = server.post(f"agent/executions/{execution['id']}/fork", {"message": "tell again"})
    server.over(forked["execution"]["id"])
    watched = new_page(server, f"#/s/{forked['session']['id']}")
    origin = watched.page.locator("[data-origin]")
    expect(origin).to_contain_text(
        "Begins with what was known after step 3 of an earlier execution"
    )
    watched.shot("forked")
    place = (
        "(one) => [one.previousElementSibling, one.nextElementSibling].map((it) => it.innerText)"
    )
    before, after = origin.evaluate(place)
    assert "tell" in before
    assert "tell again" in after
    origin.get_by_role("link").click()
    expect(watched.page.locator(f'[data-execution="{execution["id"]}"]')).to_be_visible()


def test_an_execution_that_runs_is_followed_to_its_end(server: Server, new_page: NewPage) -> None:
    sent = server.send("wait for it")["execution"]["id"]
    watched = new_page(server, f"#/x/{sent}")
    page = watched.page
    expect(page.locator("[data-stop]")).to_be_visible()
    server.post(f"agent/executions/{sent}/cancel", {"reason": "seen enough"})
    stop = page.locator("[data-stop]")
    expect(stop).to_have_attribute("data-reason", "user_requested")
    expect(stop).to_contain_text("seen enough")


def test_raw_events_go_on_when_the_server_is_back(new_page: NewPage) -> None:
    with serving() as server:
        sent = server.send("wait for it")
        watched = new_page(server, f"#/x/{sent['execution']['id']}")
        watched.allow(
            "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY"
        )
        page = watched.page
        page.get_by_role("heading", name="Raw events").scroll_into_view_if_needed()
        expect(page.locator("[data-event]", has_text="agent.tool.started")).to_be_attached()
        events = page.locator("section", has=page.get_by_role("heading", name="Raw events"))
        server.kill()
        expect(events).to_contain_text("Reconnecting")
        expect(events.get_by_role("alert")).to_have_count(0)
        server.start()
        expect(events).not_to_contain_text("Reconnecting")
        # Another worker takes it up, and what that one does is told behind what was seen.
        assert server.over(sent["execution"]["id"], 60)["status"] == "completed"
        logged = server.get(f"agent/sessions/{sent['session']['id']}")["last_seq"]
        expect(page.locator(f'[data-event="{logged}"]')).to_have_count(1)
        numbers = "(rows) => rows.map((row) => Number(row.dataset.event))"
        seen = page.locator("[data-event]").evaluate_all(numbers)
        assert seen == sorted(set(seen))
        watched.close()


def test_an_execution_that_does_not_exist_is_told(server: Server, new_page: NewPage) -> None:
    watched = new_page(server, "#/x/nothing")
    watched.allow("404")
    expect(watched.page.get_by_role("alert")).to_contain_text("Execution not found")
