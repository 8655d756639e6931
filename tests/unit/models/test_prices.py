"""What a turn costs, by the price list inside genai-prices."""

import pytest

from stepwell.messages import Usage
from stepwell.models.prices import price
from stepwell.models.providers import KNOWN_PROVIDERS

MILLION = 1_000_000


def test_input_and_output_have_their_prices() -> None:
    asked = price(Usage(input_tokens=MILLION), "gpt-4o", provider="openai")
    said = price(Usage(output_tokens=MILLION), "gpt-4o", provider="openai")

    assert (asked, said) == (pytest.approx(2.5), pytest.approx(10.0))


@pytest.mark.parametrize(
    ("model", "provider"),
    [("gpt-4o", "openai"), ("claude-sonnet-4-5", "anthropic"), ("gemini-2.5-flash", "google")],
)
def test_cached_tokens_are_cheaper_and_part_of_the_input(model: str, provider: str) -> None:
    fresh = price(Usage(input_tokens=100_000), model, provider=provider)
    cached = price(Usage(input_tokens=100_000, cached_tokens=100_000), model, provider=provider)

    assert 0 < cached < fresh


def test_writing_to_the_cache_costs_more_than_reading_from_it() -> None:
    def cost(**counts: int) -> float:
        usage = Usage(input_tokens=100_000, **counts)
        return price(usage, "claude-sonnet-4-5", provider="anthropic")

    assert cost(cached_tokens=100_000) < cost() < cost(cache_write_tokens=100_000)


def test_reasoning_is_part_of_the_output() -> None:
    plain = Usage(output_tokens=1000)
    reasoned = Usage(output_tokens=1000, reasoning_tokens=900)

    assert price(plain, "gpt-5", provider="openai") == price(reasoned, "gpt-5", provider="openai")


@pytest.mark.parametrize(
    ("usage", "model", "provider"),
    [
        (Usage(input_tokens=10), "no-such-model", "openai"),
        (Usage(input_tokens=10), "gpt-4o", "no-such-provider"),
        (Usage(input_tokens=10), "gpt-4o", None),
        (Usage(input_tokens=10), "", "openai"),
        (Usage(), "gpt-4o", "openai"),
        (Usage(input_tokens=10, cached_tokens=20), "gpt-4o", "openai"),
        (Usage(input_tokens=-5), "gpt-4o", "openai"),
    ],
)
def test_what_nobody_lists_costs_nothing_that_is_known(
    usage: Usage, model: str, provider: str | None
) -> None:
    assert price(usage, model, provider=provider) in (0.0, pytest.approx(0.0, abs=1e-4))
    assert price(usage, model, provider=provider) >= 0.0


def test_a_price_is_a_plain_number() -> None:
    assert type(price(Usage(input_tokens=10), "gpt-4o", provider="openai")) is float


@pytest.mark.parametrize(
    "name", [name for name, known in KNOWN_PROVIDERS.items() if known.prices is not None]
)
def test_the_price_list_knows_the_known_providers(name: str) -> None:
    from genai_prices.data import providers

    known = KNOWN_PROVIDERS[name]
    assert known.prices in {listed.id for listed in providers}
    if known.default_model is not None:
        assert price(Usage(input_tokens=MILLION), known.default_model, provider=known.prices) > 0
