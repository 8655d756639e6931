"""Usage: sums of tokens and what counts as none."""

import pytest

from stepwell import FinishReason, Usage

FULL = Usage(
    input_tokens=10, output_tokens=5, cached_tokens=4, cache_write_tokens=3, reasoning_tokens=2
)


def test_total_is_input_and_output_only():
    assert FULL.total_tokens == 15


def test_sum_adds_every_kind():
    twice = FULL + FULL

    assert twice == Usage(
        input_tokens=20, output_tokens=10, cached_tokens=8, cache_write_tokens=6, reasoning_tokens=4
    )


def test_adding_nothing_changes_nothing():
    assert FULL + Usage() == FULL
    assert Usage() + FULL == FULL


@pytest.mark.parametrize("kind", ["cached_tokens", "cache_write_tokens", "reasoning_tokens"])
def test_sum_does_not_drop_a_kind_that_comes_alone(kind):
    assert getattr(FULL + Usage(**{kind: 7}), kind) == getattr(FULL, kind) + 7


def test_usage_is_true_once_any_token_was_used():
    assert not Usage()
    assert Usage(input_tokens=1)
    assert Usage(output_tokens=1)


def test_finish_reasons_are_the_wire_words():
    assert [str(reason) for reason in FinishReason] == [
        "stop",
        "tool_calls",
        "length",
        "content_filter",
        "error",
        "other",
    ]
