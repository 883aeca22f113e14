"""One request and its response, as WASI has them."""

from componentize_py_types import Err, Ok
from wit_world.imports import types
from wit_world.imports.streams import StreamError_Closed

# Most bytes of one read.
_PIECE = 64 * 1024

_METHODS = {
    getattr(types, f"Method_{name.capitalize()}"): name
    for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
}


# Tells the prefix of the function's URL. The node sets it, and removes a client's own.
_PREFIX = "x-forwarded-prefix"


class Incoming:
    """A request: its head at once, or part by part; its body as it comes."""

    def __init__(self, request):
        self._request = request
        self._prefix = None
        self._body = self._stream = None
        self._is_ended = False

    def method(self) -> str:
        method = self._request.method()
        return _METHODS.get(type(method)) or method.value

    def target(self) -> str:
        """Path and query."""
        return self._request.path_with_query() or "/"

    def scheme(self) -> str:
        scheme = self._request.scheme()
        return "https" if isinstance(scheme, types.Scheme_Https) else "http"

    def authority(self) -> str:
        return self._request.authority() or "localhost"

    def fields(self) -> list[tuple[str, bytes]]:
        """Names in lower case, with their values; with the host, and cookies in one.

        The URL's prefix is left out.
        """
        fields = self._request.headers().entries()
        cookies, prefixes = [], []
        for field in fields:
            if field[0] == "cookie":
                cookies.append(field[1])
            elif field[0] == _PREFIX:
                prefixes.append(field)
        self._prefix = ""
        for field in prefixes:
            self._prefix = field[1].decode("latin-1").rstrip("/")
            fields.remove(field)
        if len(cookies) > 1:
            fields = [field for field in fields if field[0] != "cookie"]
            fields.append(("cookie", b"; ".join(cookies)))
        if not any(name == "host" for name, _ in fields):
            fields.insert(0, ("host", self.authority().encode()))
        return fields

    def prefix(self) -> str:
        """The prefix of the function's URL, such as `/shop`; empty if it has its own host."""
        if self._prefix is None:
            self.fields()
        return self._prefix

    def read_all(self) -> bytes:
        """The rest of the body."""
        pieces = []
        while piece := self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def read(self, most=_PIECE) -> bytes:
        """Some of the body, as soon as there is any; nothing at its end.

        Raises ConnectionError where it is cut short.
        """
        return self._read("blocking_read", most)

    def read_what_is_there(self) -> bytes | None:
        """What is there already; None at the end."""
        piece = self._read("read", _PIECE)
        return None if self._is_ended else piece

    def pollable(self):
        """Is ready when there is something to read."""
        return self._stream.subscribe()

    def close(self) -> None:
        """Gives back what is left: the stream before the body that it is of.

        An error of the stream's refers to it, and to itself, so that it would last.
        """
        for part in (self._stream, self._body):
            if part is not None:
                part.__exit__(None, None, None)
        self._stream = self._body = None

    def _read(self, how, most):
        if self._stream is None:
            self._body = self._request.consume()
            self._stream = self._body.stream()
        if self._is_ended:
            return b""
        try:
            return getattr(self._stream, how)(most)
        except Err as error:
            self._is_ended = True
            if isinstance(error.value, StreamError_Closed):
                return b""
            raise ConnectionError("the request's body was cut short") from None


class Outgoing:
    """The response. It is started once, written to, and ended."""

    def __init__(self, outparam):
        self._outparam = outparam
        self._body = self._stream = None

    @property
    def is_started(self) -> bool:
        return self._outparam is None

    def start(self, status: int, fields: list[tuple[str, bytes]]) -> None:
        """Sends the head, but for what is the connection's. Raises ValueError where it is none."""
        left_out = _OF_CONNECTION if has_body(status) else _OF_CONNECTION | {"content-length"}
        fields = [field for field in fields if field[0] not in left_out]
        try:
            response = types.OutgoingResponse(types.Fields.from_list(fields))
            if status != 200:
                response.set_status_code(status)
        except Err as error:
            raise ValueError(_wrong(error.value, status, fields)) from None
        self._body = response.body()
        self._stream = self._body.write()
        outparam, self._outparam = self._outparam, None
        types.ResponseOutparam.set(outparam, Ok(response))

    def write(self, data) -> None:
        """Sends some of the body, at the pace of whoever takes it.

        Raises ConnectionError when nobody does any more.
        """
        stream = self._stream
        start, size = 0, len(data)
        try:
            while start < size:
                room = stream.check_write()
                if room == 0:
                    with stream.subscribe() as pollable:
                        pollable.block()
                    continue
                stream.write(bytes(data[start : start + room]))
                start += room
        except Err:
            raise _not_taken() from None

    async def write_in(self, loop, data) -> None:
        """The same, while others go on that the loop has."""
        stream = self._stream
        start, size = 0, len(data)
        try:
            while start < size:
                room = stream.check_write()
                if room == 0:
                    await loop.until(stream.subscribe())
                    continue
                stream.write(bytes(data[start : start + room]))
                start += room
        except Err:
            raise _not_taken() from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except Err:
            raise _not_taken() from None

    def end(self) -> None:
        """Ends the body; what was said of its length must be true."""
        self._stream.__exit__(None, None, None)
        try:
            types.OutgoingBody.finish(self._body, None)
        except Err:
            raise RuntimeError("the body is not as long as its content-length says") from None
        finally:
            self._stream = self._body = None

    def fail(self, message: str) -> None:
        """Answers with an error, 502, or cuts the response short if it has begun."""
        if self._outparam is None:
            self._cut()
            return
        outparam, self._outparam = self._outparam, None
        types.ResponseOutparam.set(outparam, Err(types.ErrorCode_InternalError(message)))

    def _cut(self):
        if self._stream is not None:
            self._stream.__exit__(None, None, None)
            self._body.__exit__(None, None, None)
            self._stream = self._body = None


def has_body(status: int) -> bool:
    """Whether a response of this status has any (RFC 9110, section 6.4.1)."""
    return status >= 200 and status not in (204, 304)


# Fields that are the connection's, and so the node's.
_OF_CONNECTION = frozenset(
    ("connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection", "te")
)


def _not_taken():
    return ConnectionError(
        "the body is not taken: its client is gone, or it is longer than its content-length says"
    )


def _wrong(error, status, fields):
    if error is None:
        return f"{status} is no status of HTTP"
    for name, value in fields:
        try:
            types.Fields.from_list([(name, value)])
        except Err as error:
            if isinstance(error.value, types.HeaderError_Forbidden):
                return f"the header field {name!r} is the connection's, and not the function's"
            return f"the header field {name!r}: {value!r} has characters that none may have"
    return f"the header fields are refused: {error}"
