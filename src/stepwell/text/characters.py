"""Half characters: lone surrogates, which come from undecodable file names and from models that cut
a text between two escapes. UTF-8 can't hold them.

What someone gives us is refused (``is_encodable``); what we show or store for others is repaired
(``replace_half_characters``). The full format alone keeps them exactly, as JSON escapes.
"""

HALF_CHARACTER = "half a character (a lone surrogate)"
"""What error messages call it."""


def is_encodable(text: str) -> bool:
    """Return whether the text has no half character.

    >>> is_encodable("caf\\u00e9"), is_encodable("caf\\udce9")
    (True, False)
    """
    if text.isascii():  # known without a copy
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_half_characters(text: str) -> str:
    """Return the text with two halves of one character joined and every other half replaced.

    >>> replace_half_characters("\\ud83d\\ude00 caf\\udce9")
    '\U0001f600 caf\ufffd'
    """
    if is_encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
