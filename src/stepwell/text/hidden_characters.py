"""Characters that a person can't see, so that whoever prints foreign text can write them out.

Hidden are controls, format characters (Cf), default ignorable code points, line separators,
noncharacters and a few blank symbols, wherever they stand; joiners, variation selectors and tags
except where a script or an emoji needs them. ``ui/page/hidden_text.js`` has the same rules: change
both. Called by the command line and the console broadcaster.
"""

import re
from collections.abc import Callable
from unicodedata import category

MOST_MARKS = 8
"""How many combining marks one character may carry; more would grow over the lines around it."""

_NONCHARACTERS = "".join(
    f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17)
)
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\ud800-\udfff\U00013430-\U00013440\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    f"\U0001d173-\U0001d17a\U000e0000-\U000e0fff{_NONCHARACTERS}"
)
_EMOJI = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    "\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_JOINING = (
    "\u0620-\u06ff\u0710-\u07ff\u0840-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17dd"
    "\u1820-\u18aa\u1900-\u1aaf\u1b00-\u1bff\ua800-\ua8ff\uaa00-\uaa7f\uabc0-\uabff\ufb50-\ufdcf"
    "\ufdf0-\ufdff\ufe70-\ufefc\U00010a00-\U00010fff\U00011000-\U00011fff"
)
# England, Scotland and Wales: the flags that are drawn as flags.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_NEEDED = (
    f"{_FLAGS}|[0-9#*]\ufe0f\u20e3|[{_EMOJI}][\ufe0e\ufe0f]|[{_HAN}][\ufe00-\ufe02\U000e0100-\U000e01ef]"
    "|[\u1820-\u18aa][\u180b-\u180d\u180f]"
    f"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
)
_FOUND = re.compile(f"(?P<needed>{_NEEDED})|[{_HIDDEN}]")
# Runs in which there may be too many marks: none of them is below U+0300.
_MAY_BE_MARKS = re.compile(f"[\u0300-\U0010ffff]{{{MOST_MARKS + 1},}}")


def replace_hidden(text: str, spell: Callable[[str], str]) -> str:
    """The text with each hidden character as ``spell`` writes it."""
    return _FOUND.sub(lambda found: found[0] if found["needed"] else spell(found[0]), text)


def reveal(text: str) -> str:
    """The text with each hidden character as its code, and marks above ``MOST_MARKS`` counted.

    >>> reveal("a\\u202eb")
    'a⟨U+202E⟩b'
    >>> reveal("e" + "\\u0301" * 80_000) == "e" + "\\u0301" * 8 + "⟨+79992 marks⟩"
    True
    """
    return _MAY_BE_MARKS.sub(_count_marks, replace_hidden(text, _code))


def _code(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _count_marks(found: re.Match[str]) -> str:
    shown: list[str] = []
    marks = 0
    for character in (*found[0], ""):
        if character and category(character)[0] == "M":
            marks += 1
            if marks > MOST_MARKS:
                continue
        elif marks:
            shown.append(f"⟨+{marks - MOST_MARKS} marks⟩" if marks > MOST_MARKS else "")
            marks = 0
        shown.append(character)
    return "".join(shown)
