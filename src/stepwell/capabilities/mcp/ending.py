"""How a connection came to its end; whoever learns of it first tells the others."""

import asyncio


class Ending:
    """Whether a connection is over, and why."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self.words = ""
        self.last_words = ""
        """What the server wrote to its standard error before. For developers: no model sees it."""

    @property
    def has_happened(self) -> bool:
        """Whether the connection is over, or being ended."""
        return self._happened.is_set()

    def tell(self, words: str, *, last_words: str = "") -> None:
        """It is over; only the first to say so is heard."""
        if not self.has_happened:
            self.words, self.last_words = words, last_words
            self._happened.set()

    async def wait(self) -> None:
        """Until it is over."""
        await self._happened.wait()
