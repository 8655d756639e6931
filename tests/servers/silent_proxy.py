"""A TCP proxy that can stop forwarding without closing anything, as a firewall drops a flow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class SilentProxy:
    """Forwards connections to one address on this machine."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._flows: set[asyncio.Event] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: list[asyncio.StreamWriter] = []
        self.port = 0

    def drop_flows(self) -> int:
        """Forward nothing more on the connections there are; new ones are forwarded. How many."""
        for forwards in self._flows:
            forwards.clear()
        dropped = len(self._flows)
        self._flows.clear()
        return dropped

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection both ways."""
        forwards = asyncio.Event()
        forwards.set()
        self._flows.add(forwards)
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._ends += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._forward(source, sink, forwards))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, forwards: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                await forwards.wait()
                sink.write(data)
                await sink.drain()
            await forwards.wait()
            sink.close()

    async def stop(self) -> None:
        """Cut all connections."""
        for end in self._ends:
            end.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def silent_proxy(port: int) -> AsyncIterator[SilentProxy]:
    """A proxy to that port for the length of a block."""
    proxy = SilentProxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
