"""asyncio's transport over a `Conversation`: what `loop.create_connection` connects."""

import asyncio
from asyncio.trsock import TransportSocket

# Bytes that wait to be sent, above which the protocol pauses, and below which it resumes.
_HIGH_WATER = 64 * 1024
_LOW_WATER = 16 * 1024

_PIECE = 256 * 1024


class Transport(asyncio.Transport):
    """A connection that carries HTTP/1.1 requests."""

    def __init__(self, loop, sock, protocol, context=None, server_hostname=None):
        extra = {
            "socket": TransportSocket(sock),
            "sockname": sock.getsockname(),
            "peername": sock.getpeername(),
        }
        super().__init__(extra)
        self._loop = loop
        self._sock = sock
        self._conversation = sock._conversation
        self._protocol = protocol
        self._is_reading = True
        self._is_closing = False
        self._is_paused = False
        self._is_due = False
        self._read_watch = self._write_watch = None
        self._high, self._low = _HIGH_WATER, _LOW_WATER
        if context is not None:
            self.begin_tls(context, server_hostname)

    def begin_tls(self, context, server_hostname) -> None:
        """Sends the next requests as `https`."""
        import ssl

        wrapped = context.wrap_bio(
            ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=server_hostname
        )
        self._conversation.begin_tls(server_hostname)
        self._extra.update(
            sslcontext=context,
            ssl_object=wrapped,
            peercert=wrapped.getpeercert(),
            cipher=None,
            compression=None,
        )

    # Writing

    def write(self, data):
        if self._is_closing:
            return
        try:
            self._send(data)
        except OSError as error:
            self._fail(error)
            return
        self._note_unsent()
        self._schedule()

    def _send(self, data=b"") -> bool:
        """Sends what waits and `data`. Returns False if some must wait for space."""
        try:
            return self._conversation.send(data)
        except BrokenPipeError:
            # The server reads no more of the request: its response, which is still to be read,
            # has the reason.
            self._conversation.discard_unsent()
            return True

    def writelines(self, list_of_data):
        self.write(b"".join(list_of_data))

    def can_write_eof(self):
        return False

    def write_eof(self):
        raise NotImplementedError("the end of a request follows from its head")

    def get_write_buffer_size(self):
        return self._conversation.unsent

    def get_write_buffer_limits(self):
        return self._low, self._high

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = high if high is not None else 4 * low if low else _HIGH_WATER
        self._low = low if low is not None else self._high // 4

    def _note_unsent(self):
        unsent = self._conversation.unsent
        if unsent > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()
        elif unsent <= self._low and self._is_paused:
            self._is_paused = False
            self._protocol.resume_writing()

    # Reading

    def is_reading(self):
        return self._is_reading and not self._is_closing

    def pause_reading(self):
        self._is_reading = False
        self._read_watch = self._unwatch(self._read_watch)

    def resume_reading(self):
        if not self._is_reading:
            self._is_reading = True
            self._schedule()

    def _schedule(self):
        # Several writes of one step of the loop are sent together.
        if not self._is_due and not self._is_closing:
            self._is_due = True
            self._loop.call_soon(self._proceed)

    def _proceed(self):
        self._is_due = False
        if self._is_closing:
            return
        try:
            self._proceed_writing()
            if self._is_reading:
                self._proceed_reading()
        except Exception as error:
            # Also an error of the protocol's own methods: without `connection_lost`, its client
            # would wait for ever.
            self._fail(error)

    def _proceed_writing(self):
        conversation = self._conversation
        self._write_watch = self._unwatch(self._write_watch)
        if not self._send() and (at := conversation.pollable_to_write()) is not None:
            self._write_watch = self._loop.watch(at, self._schedule)
        self._note_unsent()

    def _proceed_reading(self):
        conversation = self._conversation
        self._read_watch = self._unwatch(self._read_watch)
        received = conversation.receive(_PIECE)
        if received is None:
            if (pollable := conversation.pollable_to_read()) is not None:
                self._read_watch = self._loop.watch(pollable, self._schedule)
        elif received:
            self._deliver(received)
            # Other callbacks run between two pieces.
            self._schedule()
        elif not self._protocol.eof_received():
            self.close()
        else:
            self._is_reading = False

    def _deliver(self, received):
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(received)
            return
        while received:
            buffer = protocol.get_buffer(len(received))
            size = min(len(buffer), len(received))
            buffer[:size] = received[:size]
            protocol.buffer_updated(size)
            received = received[size:]

    def _unwatch(self, watch):
        if watch is not None:
            self._loop.unwatch(watch)

    # Closing

    def set_protocol(self, protocol):
        self._protocol = protocol

    def get_protocol(self):
        return self._protocol

    def is_closing(self):
        return self._is_closing

    def close(self):
        """Closes the connection, and abandons a request whose response is not complete."""
        if not self._is_closing:
            self._end(None)

    def abort(self):
        self.close()

    def _fail(self, error):
        if not isinstance(error, OSError):
            message = "Fatal error: protocol method failed."
            context = {"message": message, "exception": error, "transport": self}
            self._loop.call_exception_handler({**context, "protocol": self._protocol})
        if not self._is_closing:
            self._end(error)

    def _end(self, error):
        self._is_closing = True
        self._read_watch = self._unwatch(self._read_watch)
        self._write_watch = self._unwatch(self._write_watch)
        self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
