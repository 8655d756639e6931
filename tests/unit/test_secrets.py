"""One way to take secrets out of texts, and one list of the names that hold them."""

from base64 import b64encode
from copy import deepcopy
from pickle import dumps
from urllib.parse import quote

import pytest

from stepwell.errors import ConfigurationError
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.secrets import HIDDEN, Redactor, Secret, hide, is_secret_field, is_secret_variable

CANARY = "canary/5f1c 9e\u00e4"


@pytest.mark.parametrize(
    ("secret", "text", "left"),
    [
        ("abcdefgh", "xabcdefghx abcdefgh", "x[secret]x [secret]"),
        ("abcdefgh", "nothing", "nothing"),
        ("ollama", "a dummy key: ollama:qwen3", "a dummy key: ollama:qwen3"),
        ("", "nothing", "nothing"),
    ],
)
def test_a_secret_is_taken_out_of_a_text(secret: str, text: str, left: str) -> None:
    assert hide(text, [secret]) == left


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        repr(CANARY),
        ascii(CANARY),
        quote(CANARY),
        quote(CANARY, safe=""),
        CANARY.encode().hex(),
        b64encode(b"user:" + CANARY.encode() + b"!").decode(),
    ],
)
def test_a_secret_is_found_in_every_encoding(text: str) -> None:
    assert HIDDEN in hide(f"<{text}>", [CANARY])


def test_of_two_secrets_the_longer_one_is_replaced_first() -> None:
    assert hide("abcdefgh-ijklmnop", ["abcdefgh", "abcdefgh-ijklmnop"]) == HIDDEN


def test_json_and_bytes_are_redacted_with_their_keys_and_numbers() -> None:
    redactor = Redactor.of(["12345678"])

    assert redactor.json({"12345678": [12345678, 1, "x12345678"]}) == {
        HIDDEN: [HIDDEN, 1, f"x{HIDDEN}"]
    }
    assert redactor.data(b"<12345678>") == b"<[secret]>"


async def test_a_secret_is_revealed_and_never_printed_copied_or_pickled() -> None:
    secret = Secret("canary-5f1c9e")

    assert await secret.reveal() == "canary-5f1c9e"
    assert f"{secret} {secret!r}" == f"Secret({HIDDEN}) Secret({HIDDEN})"
    assert deepcopy(secret) is secret
    with pytest.raises(TypeError, match="never serialized"):
        dumps(secret)


async def test_a_function_may_give_it() -> None:
    async def read() -> str:
        return "canary-5f1c9e"

    assert await Secret(read).reveal() == "canary-5f1c9e"


async def test_what_the_function_raises_is_not_shown() -> None:
    def read() -> str:
        raise LookupError("canary-5f1c9e")

    with pytest.raises(ConfigurationError, match="gives the secret raised LookupError") as raised:
        await Secret(read).reveal()
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("name", [it.key_env for it in KNOWN_PROVIDERS.values() if it.key_env])
def test_the_key_of_every_provider_is_in_a_secret_variable(name: str) -> None:
    assert is_secret_variable(name)


def test_names_of_fields_are_judged_more_narrowly_than_variables() -> None:
    assert is_secret_field("client_secret")
    assert not is_secret_field("max_tokens")
    assert is_secret_variable("MAX_TOKENS")
