"""The cost of a turn, by the price list in ``genai-prices``. Nothing is fetched."""

from stepwell.messages import Usage


def price(usage: Usage, model: str, *, provider: str | None) -> float:
    """Return the price of a usage in dollars, or 0.0 if the model has no known price.

    >>> price(Usage(input_tokens=1_000_000), "claude-sonnet-4-5", provider="anthropic") > 1
    True
    """
    if provider is None or not usage:
        return 0.0
    import genai_prices

    try:
        used = genai_prices.Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        return float(genai_prices.calc_price(used, model, provider_id=provider).total_price)
    except (LookupError, ValueError):  # unknown model, or usage without a price
        return 0.0
