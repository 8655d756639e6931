"""The code that the docs show for a page, run in Node.js: it ends with what is stored."""

import json
import subprocess
from pathlib import Path

import pytest

import stepwell
from tests.servers.node import HERE, find_node, why_missing

MODULE = Path(stepwell.__file__).parent / "ui" / "message_list.js"
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "live-ui.md"

BEFORE = """
const later = setTimeout;
globalThis.setTimeout = (then) => later(then, 1);
globalThis.requestAnimationFrame = (then) => later(then, 0);
let [stored, fetches, failures, screen, posted] = [[], 0, 0, [], []];
const render = (shown) => (screen = shown.map(({ content }) => content));
const postMessage = (text, id) => posted.push(text);
const askAgain = () => undefined;
async function fetchMessages() {
  fetches += 1;
  const found = [...stored];
  await new Promise((resolve) => later(resolve, 10));
  if (failures-- > 0) throw new Error("no line");
  return found;
}
"""
AFTER = """
const ended = (seq, id) => ({ id: `i${seq}`, seq, type: "agent.status", execution_id: id,
  payload: { status: "completed", last_response: `${id}, live`, step_count: 1 } });
const rest = () => new Promise((resolve) => later(resolve, 150));
const answer = (id) => ({ id: `${id}:1:0`, role: "assistant", content: `${id}, stored` });

onSend("typed");
stored.push(answer("e1"));
onEnvelope(ended(1, "e1"));
stored.push(answer("e2"));
onEnvelope(ended(2, "e2"));                        // while the first fetch is open
await rest();
const both = { screen, fetches, needs: needsHistory(list) };
failures = 2;
stored.push(answer("e3"));
onEnvelope(ended(3, "e3"));
await rest();
console.log(JSON.stringify({ both, screen, fetches, needs: needsHistory(list), posted }));
"""


@pytest.mark.skipif(why_missing(HERE / "message_list.mjs") is not None, reason="no Node.js")
def test_the_page_of_the_docs_shows_what_is_stored_also_after_failed_fetches() -> None:
    found = find_node()
    assert found is not None
    page = PAGE.read_text(encoding="utf-8").split("```js\n")[1].split("```")[0]
    imports, rest = page.replace("./message_list.js", MODULE.as_uri()).split(";\n", 1)

    ended = subprocess.run(
        [found.node, "--input-type=module", "-"],
        input=f"{imports};{BEFORE}{rest}{AFTER}",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.stderr == ""
    assert json.loads(ended.stdout) == {
        "both": {"screen": ["e1, stored", "e2, stored", "typed"], "fetches": 3, "needs": False},
        "screen": ["e1, stored", "e2, stored", "e3, stored", "typed"],
        "fetches": 6,
        "needs": False,
        "posted": ["typed"],
    }
