"""What becomes of each file in ``tests/wild/agents`` when it is read leniently.

The files are written by hand, in the shapes that public collections of agents have.
"""

import sys

from msgspec import Struct


class Loads(Struct, frozen=True):
    """The file is an agent; ``note`` is a piece of the first note, empty if there is none."""

    name: str
    tools: tuple[str, ...] | None = None
    note: str = ""


class Fails(Struct, frozen=True):
    """The file is refused; the error begins with this text."""

    text: str


CASES: dict[str, Loads | Fails] = {
    "alias-honest.md": Loads("sharer", tools=("Read", "Grep")),
    "allowed-tools-key.md": Loads(
        "skillish", tools=("Read", "Grep"), note="read allowed-tools as tools"
    ),
    "arrow-value.md": Loads("migrator", note="put quotes around description"),
    "at-sign-value.md": Loads("mentioner", note="put quotes around description"),
    "backtick-value.md": Loads("ticker", note="put quotes around description"),
    "blank-lines-first.md": Loads("late-starter"),
    "body-code-fence.md": Loads("fencer"),
    "body-rules.md": Loads("ruler"),
    "body-second-front-matter.md": Loads("doubled"),
    "bom-crlf.md": Loads("marked-windows", tools=()),
    "bom.md": Loads("marked"),
    "bom.yaml": Loads("marked-yaml"),
    "brace-value.md": Loads("templater", note="put quotes around description"),
    "bracket-value.md": Loads("bracketed", note="put quotes around description"),
    "budget-aliases.yaml": Loads("thrifty"),
    "capital-keys.md": Loads("shouter", tools=("Read",)),
    "colon-at-end.md": Loads("ender", note="put quotes around description"),
    "colon-in-description.md": Loads(
        "api-designer", tools=("Read", "Write"), note="put quotes around description"
    ),
    "comma-tools-no-spaces.md": Loads("dead-code-finder", tools=("Read", "Grep", "Glob")),
    "comment-first.md": Loads(
        "commented", tools=("Read",), note="skipped a comment before the front matter"
    ),
    "cr-only.md": Loads("old-mac"),
    "crlf.md": Loads("windows", tools=("Read", "Bash")),
    "dash-value.md": Loads("dashed", note="put quotes around description"),
    "disallowed-tools-list.md": Loads("careful-list"),
    "disallowed-tools.md": Loads("careful"),
    "dots-close.md": Loads("dotted"),
    "emoji.md": Loads("🚀 deployer"),
    "escape-code.md": Loads("colorful", note="front matter was read line by line"),
    "examples-with-fields-inside.md": Loads(
        "yaml-tutor", tools=("Read",), note="front matter was read line by line"
    ),
    "flow-list-tools.md": Loads("schema-checker", tools=("Read", "Grep", "Glob")),
    "folded-description.md": Loads("architect", tools=("Read", "Grep", "Glob")),
    "folded-strip-description.md": Loads("stripper"),
    "hash-in-description.md": Loads("csharp-dev", tools=("Read",)),
    "hash-with-colon.md": Loads("issue-linker", note="put quotes around description"),
    "hooks-and-servers.md": Loads(
        "hooked", tools=("Read",), note="fields without effect: permissionMode, mcpServers, hooks"
    ),
    "indented-continuation-colon.md": Loads(
        "colon-continuer", tools=("Read",), note="front matter was read line by line"
    ),
    "indented-continuation.md": Loads("continuer"),
    "json-front-matter.md": Loads("jsonic", tools=("Read", "Grep")),
    "literal-description.md": Loads("security-auditor", tools=("Read", "Bash")),
    "marketplace-fields.md": Loads("market"),
    "max-turns.md": Loads("bounded", note="fields without effect: memory, isolation, background"),
    "merge-key.yaml": Loads("merger"),
    "mixed-line-ends.md": Loads("half-and-half", note="put quotes around description"),
    "model-capital.md": Loads("capital"),
    "model-config.yaml": Loads("tuned"),
    "model-empty.md": Loads("undecided"),
    "model-full-id.md": Loads("pinned"),
    "model-inherit.md": Loads("heir"),
    "name-date.md": Loads("2024-02-30"),
    "name-device.md": Loads("CON"),
    "name-missing.md": Loads(
        "name-missing", tools=("Read",), note="has no name; named 'name-missing' after its file"
    ),
    "name-no.md": Loads("no"),
    "name-null.md": Loads("name-null", note="has no name; named 'name-null' after its file"),
    "name-octal.md": Loads("007"),
    "name-on.md": Loads("on"),
    "name-with-colon.md": Loads("my-plugin:reviewer"),
    "name-with-spaces.md": Loads("Senior Backend Engineer"),
    "no-break-spaces.md": Loads("nbsp", tools=("Read", "Grep")),
    "one-line-examples-no-colon.md": Loads("note-taker"),
    "one-line-examples.md": Loads(
        "test-runner", tools=("Bash", "Read"), note="put quotes around description"
    ),
    "own-format.md": Loads("librarian", tools=("read_file", "search_files")),
    "percent-value.md": Loads("coverage", note="put quotes around description"),
    "plain-apostrophe.md": Loads("plain-apostrophe"),
    "plain-reviewer.md": Loads("code-reviewer", tools=("Read", "Grep", "Glob", "Bash")),
    "plain.json": Loads("json-agent", tools=("read_file",)),
    "quoted-escaped.md": Loads("escaper"),
    "quoted-with-inner-quotes.md": Loads(
        "quoter", tools=("Read",), note="put quotes around description"
    ),
    "real-line-examples.md": Loads(
        "db-tuner", tools=("Bash", "Read"), note="front matter was read line by line"
    ),
    "single-quoted-apostrophe.md": Loads("apostrophes"),
    "single-quoted-broken-apostrophe.md": Loads(
        "broken-apostrophe", tools=("Read",), note="put quotes around description"
    ),
    "skills-comma.md": Loads("skilled"),
    "skills-list.md": Loads("skilled-list"),
    "tab-after-colon.md": Loads("tab-after-dashes", tools=("Read", "Grep")),
    "tab-indented-list.md": Loads(
        "tab-list", tools=("Read", "Grep"), note="replaced tabs by spaces"
    ),
    "tools-all-word.md": Loads("all-hands"),
    "tools-bash-limits.md": Loads(
        "committer",
        tools=("Read", "Bash(git add:*, git commit:*)", "Bash(git status:*)", "Grep"),
        note="so these tools are not offered: ",
    ),
    "tools-block-string.md": Loads("blocked-tools", tools=("Read", "Write")),
    "tools-empty-list.md": Loads("thinker", tools=()),
    "tools-empty-string.md": Loads(
        "haiku-poet",
        tools=(),
        note="tools is empty, so it has none; remove the field to inherit all",
    ),
    "tools-explicit-null.yaml": Loads(
        "yaml-null", note="tools has no value, so it inherits all; write [] for none"
    ),
    "tools-mcp-names.md": Loads(
        "issue-triager", tools=("mcp__github__list_issues", "mcp__github__add_label", "Read")
    ),
    "tools-mcp-wildcard.md": Loads("browser-driver", tools=("mcp__playwright__*", "Read")),
    "tools-missing.md": Loads("generalist"),
    "tools-multiline-string.md": Loads("folded-tools", tools=("Read", "Grep", "Glob")),
    "tools-none-word.md": Loads("hands-off", tools=()),
    "tools-null.json": Loads(
        "json-null", note="tools has no value, so it inherits all; write [] for none"
    ),
    "tools-null.md": Loads(
        "nullish", note="tools has no value, so it inherits all; write [] for none"
    ),
    "tools-repeated.md": Loads("stutter", tools=("Read", "Grep")),
    "tools-space-separated.md": Loads("spacer", tools=("Read", "Grep", "Glob")),
    "tools-star-bare.md": Loads("star", note="put quotes around tools"),
    "tools-star-in-list.md": Loads("star-list"),
    "tools-star-quoted.md": Loads("everything"),
    "tools-switches-closed.md": Loads("narrow", tools=("read", "grep")),
    "tools-switches.md": Loads(
        "tools-switches", note="has no name; named 'tools-switches' after its file"
    ),
    "tools-task-limits.md": Loads(
        "coordinator",
        tools=("Agent(worker, researcher)", "Read"),
        note="so these tools are not offered: ",
    ),
    "tools-trailing-comma.md": Loads("trailing", tools=("Read", "Grep")),
    "trailing-spaces.md": Loads("trailing-spaces", tools=("Read", "Grep")),
    "unicode-name.md": Loads("prüfer-日本"),
    "unindented-list-tools.md": Loads("i18n-helper", tools=("Read", "Grep")),
    "unknown-fields.md": Loads("extra", note="kept unknown fields as metadata: shoe_size, zodiac"),
    "url-value.md": Loads("linker"),
    "very-long-description.md": Loads(
        "verbose",
        tools=("Read", "Grep", "Glob", "LS", "TodoWrite", "WebFetch", "NotebookEdit"),
        note="put quotes around description",
    ),
    "yaml-comments.md": Loads("commenter", tools=("Read", "Grep")),
    "yaml-list-tools.md": Loads("release-notes", tools=("Read", "Bash", "Write")),
    "zero-width-in-body.md": Loads("pasted"),
    "alias-bomb.md": Fails("line 9: contains too many values, with aliases expanded"),
    "alias-bomb.yaml": Fails("line 9: contains too many values, with aliases expanded"),
    "alias-itself.md": Fails("line 5: 'm' contains itself"),
    "array.json": Fails("contains no `name: value` fields"),
    "bidi-name.md": Fails("name 'safe\\u202etxt.exe' contains the character U+202E; remove it"),
    "blank.md": Fails("has no front matter; begin the file with a line of ---"),
    "body-blank.md": Fails("has no prompt: the body after the front matter is empty"),
    "body-empty.md": Fails("has no prompt: the body after the front matter is empty"),
    "both-missing.md": Fails("lacks description"),
    "budget-negative.yaml": Fails("budget: a budget of -1 steps is negative; use 0 or more"),
    "budget-text.yaml": Fails("budget: Expected `int | null`, got `str` - at `$.steps`"),
    "budget-unknown.yaml": Fails(
        "budget has unknown fields: wishes; known: steps, tokens, seconds, cost"
    ),
    "comment-only-front-matter.md": Fails("lacks description"),
    "cp1252-body.md": Fails("line 6: byte 0x80 is not UTF-8; save the file as UTF-8"),
    "custom-tag.yaml": Fails("line 2: the tag '!include' is not supported; remove it"),
    "deep-nesting.json": Fails("metadata is nested deeper than 16 levels"),
    "deep-nesting.md": Fails("line 4: nested deeper than 32 levels"),
    "description-empty.md": Fails("description is empty; write some text"),
    "description-list.md": Fails(
        "description must be text, got ['Reviews code', 'Writes tests']; put it in quotes"
    ),
    "description-missing.md": Fails("lacks description"),
    "description-number.md": Fails("description must be text, got 12; put it in quotes"),
    "duplicate-by-case.md": Fails("name is given twice, as 'name' and 'Name'; keep one"),
    "duplicate-keys.json": Fails("'name' is given twice; keep one"),
    "duplicate-keys.md": Fails("line 5: 'tools' is given twice, first in line 4; keep one"),
    "empty-front-matter.md": Fails("lacks description"),
    "empty.md": Fails("has no front matter; begin the file with a line of ---"),
    "equals-signs.md": Fails("line 2: the front matter contains no `name: value` fields"),
    "garbage-front-matter.md": Fails("line 2: not YAML"),
    "half-character.json": Fails("description contains half a character"),
    "json-only.md": Fails("has no front matter; begin the file with a line of ---"),
    "latin1.md": Fails("line 2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    "list-front-matter.md": Fails("line 2: the front matter contains no `name: value` fields"),
    "model-config-headers.yaml": Fails(
        "model can't set extra_headers; give them to the provider in code"
    ),
    "model-config-unknown.yaml": Fails(
        "model has unknown fields: temprature; known: model, temperature"
    ),
    "model-list.md": Fails(
        "model is ['opus', 'sonnet']; write a preset's name, inherit, or a preset with settings"
    ),
    "name-backslash.md": Fails(
        "name 'C:\\\\agents\\\\evil' looks like a path; use letters, digits and -"
    ),
    "name-bool.md": Fails("name must be text, got True; put it in quotes"),
    "name-dots.md": Fails("name '..' looks like a path; use letters, digits and -"),
    "name-empty.md": Fails("name is empty; write some text"),
    "name-list.md": Fails("name must be text, got ['a', 'b']; put it in quotes"),
    "name-number.md": Fails("name must be text, got 42; put it in quotes"),
    "name-path.md": Fails("name '../../etc/passwd' looks like a path; use letters, digits and -"),
    "name-two-lines.md": Fails("name 'first\\nsecond' contains the character U+000A; remove it"),
    "name-version.md": Fails("name must be text, got 1.1; put it in quotes"),
    "name-very-long.md": Fails(
        "name has 112 characters; use at most 100: the-agent-that-does-the-thing-that-the-o..."
    ),
    "no-front-matter.md": Fails("has no front matter; begin the file with a line of ---"),
    "not-a-number.json": Fails("NaN is not a JSON number"),
    "not-closed.md": Fails(
        "line 1: the front matter that starts here is not closed; end it with a line of ---"
    ),
    "nul.md": Fails("line 5: contains a NUL character; this is not a text file"),
    "prompt-field-in-markdown.md": Fails("prompt is a field; in Markdown the body is the prompt"),
    "prompt-missing.yaml": Fails("lacks system_prompt"),
    "python-tag.md": Fails(
        "line 3: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not supported; "
        "remove it"
    ),
    "scalar.yaml": Fails("contains no `name: value` fields"),
    "text-file.txt": Fails("unknown extension '.txt'; use .md, .markdown, .yaml, .yml, .json"),
    "text-front-matter.md": Fails("line 2: the front matter contains no `name: value` fields"),
    "title-first.md": Fails("has no front matter; begin the file with a line of ---"),
    "toml.md": Fails("line 1: the front matter is TOML; write YAML between lines of ---"),
    "tools-nested-mapping-list.md": Fails(
        "tools contains {'Bash': {'allow': ['git']}}; write names, quoted if needed"
    ),
    "tools-number.md": Fails("tools is 7; write a list of names"),
    "tools-numbers.md": Fails("tools contains 42; write names, quoted if needed"),
    "tools-twice-two-spellings.md": Fails(
        "tools is given twice, as 'tools' and 'allowed-tools'; keep one"
    ),
    "trailing-comma.json": Fails(
        "line 4: not JSON: Illegal trailing comma"
        if sys.version_info >= (3, 13)
        else "line 5: not JSON: Expecting property name enclosed in double quotes"
    ),
    "two-yaml-documents.yaml": Fails("line 4: a second YAML document starts here; keep one"),
    "utf16.md": Fails("is UTF-16; save it as UTF-8"),
    "zero-width-name.md": Fails(
        "name 'ghost\\u200bwriter' contains the character U+200B; remove it"
    ),
}
