"""Prices of a small shop, in cents."""


def total(prices: list[int], discount_percent: int, tax_percent: int) -> int:
    """What a customer pays."""
    with_tax = sum(prices) * (100 + tax_percent) // 100
    return with_tax - discount_percent
