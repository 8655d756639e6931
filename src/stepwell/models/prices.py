"""What a turn costs, by the price list inside ``genai-prices``; nothing is fetched."""

from stepwell.messages import Usage


def price(usage: Usage, model: str, *, provider: str | None) -> float:
    """Dollars for that usage, 0.0 where nobody lists a price for the model.

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
    except (LookupError, ValueError):  # no such model, or a usage that its prices can't cover
        return 0.0
