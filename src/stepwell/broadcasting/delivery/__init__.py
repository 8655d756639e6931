"""The queue between an adapter and one broadcaster."""

from stepwell.broadcasting.delivery.delivery import Delivery

__all__ = ["Delivery"]
