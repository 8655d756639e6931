"""300 hostile outputs in the real page: nothing is loaded, opened or made of them but text."""

import random

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewPage
from tests.browser.hostile import CORPUS, WANTED
from tests.browser.seeing import Chat
from tests.browser.serving import Server
from tests.browser.stage import pieces

PARTS = 3
MOST_RENDERS = 50

# Elements and attributes under `root` that no answer may ever make.
FORBIDDEN = """(root) => {
  const elements = new Set(`script img iframe frame object embed applet style link meta base video
    audio source track picture image form math portal template dialog marquee body html title
    textarea select noscript foreignobject animate set use feimage`.split(/\\s+/));
  const addresses =
    /^(src|srcset|action|formaction|data|poster|background|ping|xlink:href|srcdoc)$/;
  const own = /^(https?:\\/\\/|mailto:|#\\/)/;
  const found = [];
  for (const element of root.querySelectorAll("*")) {
    const name = element.localName;
    if (elements.has(name)) found.push(name);
    for (const { name: attribute, value } of element.attributes) {
      const isBad = /^on/i.test(attribute) || addresses.test(attribute)
        || (attribute === "href" && !own.test(value));
      if (isBad) found.push(`${name} ${attribute}=${value.slice(0, 80)}`);
    }
    if (name === "a" && /^https?:/.test(element.getAttribute("href") ?? "")) {
      const rel = element.getAttribute("rel") ?? "";
      if (element.target !== "_blank" || !/noopener/.test(rel) || !/noreferrer/.test(rel)) {
        found.push(`a without rel: ${element.outerHTML.slice(0, 120)}`);
      }
    }
  }
  return found;
}"""

# Writes each text into a component of its own, piece by piece, and looks at all that it made.
WRITTEN = f"""async (texts) => {{
  const {{ html, render }} = await import("./ui/page/html.js");
  const {{ Markdown }} = await import("./ui/page/markdown.js");
  const forbidden = {FORBIDDEN};
  const found = [];
  for (const [place, pieces] of texts.entries()) {{
    const host = document.createElement("section");
    document.body.append(host);
    let text = "";
    for (const piece of pieces) {{
      text += piece;
      render(html`<${{Markdown}} text=${{text}} isWhole=${{false}} />`, host);
      found.push(...forbidden(host).map((one) => `${{place}}, while it grew: ${{one}}`));
    }}
    const grown = host.textContent;
    render(html`<${{Markdown}} text=${{text}} isWhole=${{true}} />`, host);
    found.push(...forbidden(host).map((one) => `${{place}}: ${{one}}`));
    if (grown === "" && !host.querySelector("hr")) found.push(`${{place}}: nothing is shown`);
    if (place % 50 === 49) await new Promise(requestAnimationFrame);
  }}
  return found;
}}"""


def _in_pieces(text: str) -> list[str]:
    """Random small pieces; of a long text larger ones, so that it is not written for minutes."""
    cut = pieces(text, 0)
    if len(cut) <= MOST_RENDERS:
        return cut
    chance = random.Random(text)
    most = 2 * len(text) // MOST_RENDERS
    cut = []
    while text:
        length = chance.randint(1, most)
        cut.append(text[:length])
        text = text[length:]
    return cut


def test_the_corpus_is_as_large_as_it_says_and_has_no_entry_twice() -> None:
    assert len(set(CORPUS)) == len(CORPUS) == WANTED


def test_nothing_but_text_is_made_of_hostile_outputs_however_they_are_cut(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    found: list[str] = watched.page.evaluate(WRITTEN, [_in_pieces(text) for text in CORPUS])
    # An image or a style would be fetched after the script that made it.
    watched.page.wait_for_timeout(300)
    assert found == []


@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_hostile_sessions_are_shown_whole_and_harm_nothing(
    server: Server, new_page: NewPage, part: int
) -> None:
    mine = CORPUS[part - 1 :: PARTS]
    # The last line is held, so that the page is open before the end and shows it live, then stored.
    with server.held("That was"):
        sent = server.send(f"hostile {part} of {PARTS} {CORPUS[part]}", "hostile")
        session = sent["session"]["id"]
        title = {"title": CORPUS[7 * part][:150]}
        server.client.patch(f"{server.url}agent/sessions/{session}", json=title)
        watched = new_page(server, f"#/s/{session}")
        chat = Chat(watched)
        expect(chat.tool("note")).to_have_count(len(mine))
    chat.ended(60)
    expect(chat.tool("note")).to_have_count(len(mine))
    chat.tool("note").last.locator("summary").click()
    expect(chat.tool("note").last.locator("[data-result]")).to_be_attached()
    # The page's own elements have their own addresses: they are looked at apart.
    found: list[str] = watched.page.locator("[data-thread] .messages").evaluate(FORBIDDEN)
    watched.page.wait_for_timeout(200)
    assert found == []
    handlers = watched.page.locator("body").evaluate(FORBIDDEN)
    assert [each for each in handlers if " on" in each or "javascript" in each] == []

    watched.open(f"#/x/{sent['execution']['id']}")
    expect(watched.page.locator("[data-step]").first).to_be_visible()
    watched.page.locator('[data-step="2"]').get_by_role("button").first.click()
    watched.page.get_by_role("heading", name="Raw events").scroll_into_view_if_needed()
    expect(watched.page.locator("[data-event]").first).to_be_attached()
    found = watched.page.locator("[data-execution]").evaluate(FORBIDDEN)
    own_forms = ("form", "select", "textarea")
    assert [each for each in found if each not in own_forms] == []
