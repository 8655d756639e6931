"""What the page costs: 2,000 chunks at 500 per second through a real Chromium, by frame times.

A frame is the time between two calls of requestAnimationFrame. An idle page is measured in the same
run, since what else the machine does is in both. Needs Chromium and the development tools.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
from typing import Any

from bench.page_line import CHUNKS, IDLE_SECONDS, PER_SECOND, answer

FINE_MS = 34.0
WANTED_SHARE = 0.95

# Notes every frame, and how much of the text the lexer reads; before any script of the page.
NOTE_FRAMES = """
globalThis.frameTimes = [];
const noteFrame = (time) => { frameTimes.push(time); requestAnimationFrame(noteFrame); };
requestAnimationFrame(noteFrame);
"""
NOTE_LEXED = """async () => {
  const { MarkdownReader } = await import("./ui/page/markdown_reader.js");
  const lex = MarkdownReader.prototype.lex;
  globalThis.lexedAt = [];
  globalThis.changedAt = [];
  const changes = new MutationObserver((all) => changedAt.push([performance.now(), all.length]));
  changes.observe(document.body, { childList: true, characterData: true, subtree: true });
  MarkdownReader.prototype.lex = function (text) {
    lexedAt.push([performance.now(), text.length]);
    return lex.call(this, text);
  };
  return performance.now();
}"""
SEEN = """() => {
  const blocks = [...document.querySelectorAll(".markdown")];
  const last = blocks.at(-1);
  return { characters: last ? last.textContent.length : 0, now: performance.now() };
}"""


def quantile(values: list[float], share: float) -> float:
    """The value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def between(times: list[float], first: float, last: float) -> list[float]:
    """The lengths of the frames that ended in that time."""
    return [b - a for a, b in itertools.pairwise(times) if first <= b <= last]


def figures_of(
    frames: list[float],
    lexed: list[list[float]],
    changed: list[list[float]],
    begun: float,
    ended: float,
) -> dict[str, float]:
    """The figures of one run; `begun` is when the first chunk was seen, `ended` the last."""
    idle = between(frames, begun - IDLE_SECONDS * 1000 + 500, begun - 100)
    busy = between(frames, begun, ended)
    quarter = (ended - begun) / 4
    first = between(frames, begun, begun + quarter)
    last = between(frames, ended - quarter, ended)
    read_first = [length for at, length in lexed if begun <= at < begun + quarter]
    read_last = [length for at, length in lexed if ended - quarter <= at <= ended]
    changed_last = [count for at, count in changed if ended - quarter <= at <= ended]
    written = len("".join(answer()))
    return {
        "seconds": (ended - begun) / 1000,
        "frames": len(busy),
        "idle_p95_ms": quantile(idle, 0.95),
        "p50_ms": statistics.median(busy),
        "p95_ms": quantile(busy, 0.95),
        "worst_ms": max(busy),
        "share_under_34_ms": sum(each < FINE_MS for each in busy) / len(busy),
        "first_quarter_p95_ms": quantile(first, 0.95),
        "last_quarter_p95_ms": quantile(last, 0.95),
        "lexed_per_read_first_quarter": statistics.fmean(read_first or [0.0]),
        "lexed_per_read_last_quarter": statistics.fmean(read_last or [0.0]),
        "changes_per_chunk_last_quarter": sum(changed_last) / (CHUNKS / 4),
        "lexed_per_written": sum(length for _, length in lexed) / written,
    }


def measured(browser: Any, server: Any) -> dict[str, float]:
    """One session of the fast line in a new page of that browser."""
    sent = server.send("Tell me about the harbour", "fast")
    context = browser.new_context()
    try:
        context.add_init_script(NOTE_FRAMES)
        page = context.new_page()
        page.goto(f"{server.url}#/s/{sent['session']['id']}", wait_until="domcontentloaded")
        page.evaluate(NOTE_LEXED)
        grown = _grown(page)
        frames = page.evaluate("frameTimes")
        lexed, changed = page.evaluate("[lexedAt, changedAt]")
        return figures_of(frames, lexed, changed, *grown)
    finally:
        context.close()
        server.post(f"agent/executions/{sent['execution']['id']}/cancel", {})


def _grown(page: Any) -> tuple[float, float]:
    """When the answer began to grow and when it was whole, by the page's clock."""
    begun, ended, size = 0.0, 0.0, 0
    for _ in range(400):
        seen = page.evaluate(SEEN)
        if seen["characters"] > size:
            begun, ended, size = begun or seen["now"], seen["now"], seen["characters"]
        elif size and seen["now"] - ended > 2500:
            break
        page.wait_for_timeout(50)
    least = 0.7 * len("".join(answer()))
    assert size > least, f"the answer is not there: {size} characters of {least:.0f} or more"
    return begun, ended


def main(arguments: list[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench page", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=3, help="the best of so many is told (3)")
    options = parser.parse_args(arguments)
    from tests.browser.chromium import FLAGS, found_chromium, why_missing

    if reason := why_missing():
        print(f"bench: {reason}", file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright

    from tests.browser.serving import serving

    with sync_playwright() as driver, serving("bench.page_line:app") as server:
        browser = driver.chromium.launch(executable_path=found_chromium(), args=list(FLAGS))
        runs = [measured(browser, server) for _ in range(options.runs)]
        browser.close()
    figures: dict[str, float] = min(runs, key=lambda run: run["p95_ms"])
    figures |= {"chunks": CHUNKS, "per_second": PER_SECOND, "load": os.getloadavg()[0]}
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value:12.3f}")
    return 0
