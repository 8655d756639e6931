"""How the supervisor is told what to run."""

from hypothesis import given
from hypothesis import strategies as st

from stepwell.sandbox.supervisor import decode_orders, encode_orders

WORDS = st.lists(st.binary().map(lambda word: word.replace(b"\0", b"")))


@given(WORDS, WORDS, WORDS, WORDS)
def test_orders_arrive_as_they_were_given(
    argv: list[bytes], environment: list[bytes], limits: list[bytes], joins: list[bytes]
) -> None:
    orders = (argv, environment, limits, joins)
    assert decode_orders(encode_orders(orders)) == orders
