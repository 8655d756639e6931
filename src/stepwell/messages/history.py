"""An immutable sequence whose append is O(1) and shares its storage with the older value.

Every value sees a prefix of one shared list, so a run of appends never copies. Appending twice to
the same value forks: the second append copies the prefix once and goes on in a list of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, cast, overload

T = TypeVar("T")


class History(Sequence[T], Generic[T]):
    """An append-only view of the first ``len(self)`` items of a list it may share.

    >>> older = History.of("ab")
    >>> newer = older.append("c")
    >>> list(older), list(newer)
    (['a', 'b'], ['a', 'b', 'c'])
    """

    __slots__ = ("_items", "length")

    def __init__(self) -> None:
        self._items: list[T] = []
        self.length = 0
        """The same as ``len(history)``, for places where a call is too much."""

    @classmethod
    def of(cls, items: Iterable[T]) -> "History[T]":
        """A history that holds these items."""
        return cls._over(list(items))

    @classmethod
    def _over(cls, items: list[T]) -> "History[T]":
        history = cls.__new__(cls)
        history._items = items
        history.length = len(items)
        return history

    def _with_length(self, length: int) -> "History[T]":
        history = self.__class__.__new__(self.__class__)
        history._items = self._items
        history.length = length
        return history

    def append(self, item: T) -> "History[T]":
        """A history with one more item; this one stays as it is."""
        items, length = self._items, self.length
        if len(items) != length or not length:  # an empty history may be a shared default
            return self._over([*items[:length], item])
        items.append(item)
        if items[length] is not item:  # another thread appended to this value in between
            return self._over([*items[:length], item])
        return self._with_length(length + 1)

    def extend(self, items: Iterable[T]) -> "History[T]":
        """A history with these items behind its own."""
        added = tuple(items)
        shared, length = self._items, self.length
        if not added:
            return self
        if len(shared) != length or not length:
            return self._over([*shared[:length], *added])
        shared.extend(added)
        if shared[length] is not added[0] or shared[length + len(added) - 1] is not added[-1]:
            return self._over([*shared[:length], *added])  # another thread was faster
        return self._with_length(length + len(added))

    def replace_at(self, index: int, item: T) -> "History[T]":
        """A copy with another item at that place. Costs O(n): for rare corrections."""
        copy = self._items[: self.length]
        copy[index] = item
        return self._over(copy)

    def shared_with(self, other: "History[T]") -> int:
        """How many items from the first on are the very same; O(1) if one grew from the other."""
        shorter = min(self.length, other.length)
        if self._items is other._items:
            return shorter
        for index in range(shorter):
            if self._items[index] is not other._items[index]:
                return index
        return shorter

    @property
    def last(self) -> T | None:
        """The newest item, or None."""
        length = self.length
        return self._items[length - 1] if length else None

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self.length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        length = self.length
        if type(index) is int and 0 <= index < length:
            return self._items[index]
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step == 1:
                return tuple(self._items[start:stop])
            return tuple(self._items[i] for i in range(start, stop, step))
        if not -length <= index < length:
            raise IndexError(f"index {index} is outside a history of {length}")
        return self._items[index if index >= 0 else index + length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        if self.length != len(cast("History[Any]", other)):
            return False
        items = cast("History[Any]", other)._items
        return self._items is items or self._items[: self.length] == items[: self.length]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"History({list(self)!r})"

    def __copy__(self) -> "History[T]":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (list(self),))


def _restore(items: list[Any]) -> History[Any]:
    return History[Any].of(items)
