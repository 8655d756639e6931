"""Seats: a user has so many live streams and no more."""

import pytest

from stepwell.server.live.seats import Seats
from stepwell.sessions.errors import TooManyError
from stepwell.sessions.principal import Principal

ADA = Principal(user_id="ada")


def test_one_stream_too_many_is_refused_until_another_is_closed() -> None:
    seats = Seats(2)
    with seats.hold(ADA):
        with seats.hold(ADA), pytest.raises(TooManyError, match="close one of them"):
            seats.hold(ADA).__enter__()
        with seats.hold(ADA):
            pass


def test_each_user_of_each_tenant_has_seats_of_their_own() -> None:
    seats = Seats(1)
    bob, namesake = Principal(user_id="bob"), Principal(user_id="ada", tenant_id="other")
    with seats.hold(ADA), seats.hold(bob), seats.hold(namesake):
        pass
