"""asyncio over what WASI can wait for."""

import asyncio
import asyncio.events
import socket

from wit_world.imports import monotonic_clock, poll

from .threads import call_outside_loop

_NANOSECONDS = 1_000_000_000


class Loop(asyncio.BaseEventLoop):
    """An event loop for one thread: it waits for the clock, the request, and outbound calls."""

    def __init__(self):
        super().__init__()
        # Callbacks for ready pollables, by a number for each wait.
        self._watches = {}
        self._next_watch = 0
        self._unless_stuck = []
        # `BaseEventLoop` asks its selector what is ready.
        self._selector = self

    def watch(self, pollable, callback) -> int:
        """Calls `callback` when the pollable is ready, which the loop closes then."""
        self._next_watch += 1
        self._watches[self._next_watch] = pollable, callback
        return self._next_watch

    def unwatch(self, watch: int) -> None:
        """Ends a wait, and closes its pollable."""
        if (watched := self._watches.pop(watch, None)) is not None:
            watched[0].__exit__(None, None, None)

    async def until(self, pollable) -> None:
        """Waits until the pollable is ready, and closes it."""
        future = self.create_future()
        watch = self.watch(pollable, lambda: future.done() or future.set_result(None))
        try:
            await future
        finally:
            self.unwatch(watch)

    async def unless_stuck(self, future) -> None:
        """Waits until the future is done, or there is nothing else to wait for."""
        self._unless_stuck.append(future)
        await future

    def select(self, timeout):
        if timeout is not None and timeout <= 0 and not self._watches:
            return ()
        watches = list(self._watches)
        pollables = [pollable for pollable, _ in self._watches.values()]
        if timeout is not None:
            timer = monotonic_clock.subscribe_duration(max(0, int(timeout * _NANOSECONDS)))
            pollables.append(timer)
        if not pollables and (futures := [at for at in self._unless_stuck if not at.done()]):
            self._unless_stuck.clear()
            for future in futures:
                future.set_result(None)
            return ()
        if not pollables:
            raise RuntimeError("all that is awaited waits for something that never comes")
        ready = poll.poll(pollables)
        return [watches[index] for index in ready if index < len(watches)]

    def _process_events(self, events):
        for watch in events:
            if (watched := self._watches.pop(watch, None)) is not None:
                pollable, callback = watched
                pollable.__exit__(None, None, None)
                self.call_soon(callback)

    def _write_to_self(self):
        """Has no effect: no other thread could wake it."""

    def close(self):
        super().close()
        for watch in list(self._watches):
            self.unwatch(watch)

    def run_in_executor(self, executor, func, *args):
        # There are no threads: it is done at once, which is all that an awaiting caller sees.
        future = self.create_future()
        try:
            future.set_result(call_outside_loop(func, *args))
        except Exception as error:
            future.set_exception(error)
        return future

    # Connections carry HTTP only (`conversation.py`).

    async def create_connection(
        self,
        protocol_factory,
        host=None,
        port=None,
        *,
        ssl=None,
        sock=None,
        server_hostname=None,
        **_,
    ):
        if server_hostname is not None and not ssl:
            raise ValueError("server_hostname is only meaningful with ssl")
        if sock is None:
            if host is None and port is None:
                raise ValueError("host and port was not specified and no sock specified")
            sock = socket.create_connection((host, port))
            sock.setblocking(False)
        elif host is not None or port is not None:
            raise ValueError("host/port and sock can not be specified at the same time")
        context = None
        if ssl:
            context = ssl if ssl is not True else _default_context()
            server_hostname = host if server_hostname is None else server_hostname
        from .transport import Transport

        protocol = protocol_factory()
        transport = Transport(self, sock, protocol, context, server_hostname)
        protocol.connection_made(transport)
        return transport, protocol

    async def start_tls(
        self, transport, protocol, sslcontext, *, server_side=False, server_hostname=None, **_
    ):
        if server_side:
            raise socket._refusal("a TLS server")
        transport.begin_tls(sslcontext, server_hostname)
        transport.set_protocol(protocol)
        return transport

    async def sock_connect(self, sock, address):
        sock.connect(address)

    async def sock_sendall(self, sock, data):
        sock.send(data)
        conversation = sock._connected()
        while not conversation.advance():
            await self.until(conversation.pollable_to_write())

    async def sock_recv(self, sock, n):
        conversation = sock._connected()
        while (received := conversation.receive(n)) is None:
            if (pollable := conversation.pollable_to_read()) is None:
                raise socket._refusal("reading before a request was sent")
            await self.until(pollable)
        return received

    async def sock_recv_into(self, sock, buf):
        with memoryview(buf).cast("B") as view:
            received = await self.sock_recv(sock, len(view))
            view[: len(received)] = received
        return len(received)


def _refused(name):
    async def refuse(self, *_, **__):
        raise socket._refusal(name)

    refuse.__name__ = name
    return refuse


for _name in (
    "connect_accepted_socket",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "sock_accept",
    "sock_recvfrom",
    "sock_sendto",
):
    setattr(Loop, _name, _refused(_name))


def _default_context():
    import ssl

    return ssl.create_default_context()


class _Policy(asyncio.events._BaseDefaultEventLoopPolicy):
    _loop_factory = Loop


_loop = None


def the_loop() -> Loop:
    """The loop in which a script's handlers run."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)
    return _loop


def run(coroutine):
    """Returns the coroutine's result, after the tasks that it began are done.

    Closes the asynchronous generators that it began. Older ones stay open: an application's
    lifespan is usually one, and lasts for all requests.
    """
    loop = the_loop()
    tasks, generators = asyncio.all_tasks(loop), set(loop._asyncgens)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        if begun := asyncio.all_tasks(loop) - tasks:
            _finish(loop, begun)
        if begun := set(loop._asyncgens) - generators:
            loop.run_until_complete(_close(loop, begun))


async def _close(loop, generators):
    """Closes asynchronous generators, as `shutdown_asyncgens` closes all of them."""
    loop._asyncgens.difference_update(generators)
    generators = list(generators)
    closed = (generator.aclose() for generator in generators)
    results = await asyncio.gather(*closed, return_exceptions=True)
    for generator, result in zip(generators, results):
        if isinstance(result, Exception):
            message = f"an error occurred during closing of asynchronous generator {generator!r}"
            context = {"message": message, "exception": result, "asyncgen": generator}
            loop.call_exception_handler(context)


def _finish(loop, tasks):
    try:
        loop.run_until_complete(asyncio.wait(tasks))
    except RuntimeError:
        # They wait for what never comes.
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))


asyncio.events._event_loop_policy = _Policy()
