"""HTTP/1.1 as a client's connection has it, over outbound calls.

Libraries write a request to a socket and read the response from it. A `Conversation` takes these
bytes, makes a `Call` of each request, and returns each response as bytes again, so that the
libraries work unmodified. It never waits: `library/socket.py` waits for sockets, and `transport.py`
for asyncio.
"""

import errno
import http
import re

from . import phase
from .outbound import PIECE, Call

# Bytes of a head or of trailers; the node refuses larger ones too.
_HEAD_MAX = 64 * 1024
# Bytes of a line that begins a chunk.
_CHUNK_LINE_MAX = 4096

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^ \r\n]+) HTTP/1\.([01])")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?")

# Fields that belong to the connection, which is the node's.
_OF_CONNECTION = frozenset(
    ("connection", "expect", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding")
)

# The first byte of a TLS record with a handshake (RFC 8446, section 5.1). `ssl.SSLObject` writes
# one with the server's name where TLS would begin; TLS itself is the node's.
_HANDSHAKE = 0x16

_PHRASES = {status.value: status.phrase.encode() for status in http.HTTPStatus}

# What the next byte of the request belongs to.
_HEAD, _BODY, _CHUNK, _CHUNK_DATA, _TRAILERS, _SENT = range(6)

# How the response's body is framed.
_NONE, _LENGTH, _CHUNKED, _TO_END = range(4)


def _plain(host):
    return host.strip("[]").rstrip(".").lower()


def _only_http(what):
    return OSError(
        errno.EPROTONOSUPPORT,
        f"{what}: a function has no sockets, only HTTP/1.1 requests, which the node sends",
    )


def _invalid(what):
    return OSError(errno.EPROTO, f"the request is no valid HTTP/1.1: {what}")


class Conversation:
    """The requests of one connection and their responses."""

    def __init__(self, host, port):
        self.scheme = "http"
        self.host = host
        self.port = port
        self.connect_timeout = None
        self._unsent = bytearray()
        self._expects = _HEAD
        self._left = 0
        self._call = None
        self._received = b""
        self._framing = _NONE
        self._to_come = 0
        self._is_head = self._is_last = self._has_ended = False
        phase.require_request(f"a call to {host}:{port}")

    def begin_tls(self, host=None) -> None:
        """Sends the next requests with scheme `https`."""
        if host and _plain(host) != _plain(self.host):
            raise OSError(
                errno.EPROTONOSUPPORT,
                f"server_hostname {host} is another server than {self.host}, which is connected: "
                "the node sends the name of the server that it connects to",
            )
        self.scheme = "https"

    # Requests

    @property
    def unsent(self) -> int:
        """Number of bytes that wait for space, or for the rest of their line."""
        return len(self._unsent)

    def send(self, data) -> bool:
        """Takes bytes of a request. Returns False if they wait for space."""
        self._unsent += data
        return self.advance()

    def advance(self) -> bool:
        """Sends what waits. Returns False if some must still wait for space."""
        unsent = self._unsent
        while unsent:
            expects = self._expects
            if expects == _HEAD:
                if not self._take_head():
                    return True
            elif expects == _BODY or expects == _CHUNK_DATA:
                size = min(self._left, len(unsent))
                # Both views are released even if an error's traceback refers to them: `unsent`
                # could not be cleared otherwise.
                with memoryview(unsent) as whole, whole[:size] as view:
                    taken = self._write(view)
                del unsent[:taken]
                self._left -= taken
                if self._left:
                    if taken < size:
                        return False
                elif expects == _BODY:
                    self._finish([])
                else:
                    self._expects = _CHUNK
                    self._left = -1
            elif expects == _CHUNK:
                if not self._take_chunk_line():
                    return True
            elif expects == _TRAILERS:
                if not self._take_trailers():
                    return True
            elif self._call is None:
                self._expects = _HEAD
            else:
                raise _invalid("a request before the response to the last one was read")
        return True

    def discard_unsent(self) -> None:
        """Discards what waits, after the server has stopped reading the request."""
        self._unsent.clear()

    def pollable_to_write(self):
        """Returns what to wait for before `advance` is called again."""
        return self._call.pollable_to_write() if self._call is not None else None

    def _write(self, view):
        call = self._call
        if call is None:
            raise BrokenPipeError(errno.EPIPE, "the response ended before the request")
        try:
            return call.write(view)
        except BrokenPipeError:
            # The response says why the server reads no more.
            raise
        except OSError:
            self._fail()
            raise

    def _finish(self, trailers):
        self._expects = _SENT
        if self._call is None:
            return
        try:
            self._call.finish(trailers)
        except OSError:
            self._fail()
            raise

    def _fail(self):
        self._call = None
        self._has_ended = True

    def _take_head(self) -> bool:
        unsent = self._unsent
        if unsent[0] == _HANDSHAKE:
            return self._take_handshake()
        end = unsent.find(b"\r\n\r\n")
        if end < 0:
            self._check_beginning()
            return False
        head = bytes(unsent[:end])
        line, *lines = head.split(b"\r\n")
        if (match := _REQUEST_LINE.fullmatch(line)) is None:
            raise _only_http(f"{line[:40]!r} is no request of HTTP/1.1")
        if len(head) > _HEAD_MAX:
            raise _invalid(f"the head has more than {_HEAD_MAX} bytes")
        del unsent[: end + 4]
        self._begin(match, _fields(lines))
        return True

    def _check_beginning(self):
        unsent = self._unsent
        line = bytes(unsent[:_HEAD_MAX]).partition(b"\r\n")
        is_begun = _REQUEST_LINE.fullmatch(line[0]) if line[1] else line[0].isascii() and (
            b"\0" not in line[0]
        )
        if not is_begun:
            raise _only_http(f"{line[0][:40]!r} is no request of HTTP/1.1")
        if len(unsent) > _HEAD_MAX:
            raise _invalid(f"the head has more than {_HEAD_MAX} bytes")

    def _take_handshake(self) -> bool:
        unsent = self._unsent
        end = 5 + int.from_bytes(unsent[3:5]) if len(unsent) >= 5 else 5
        if len(unsent) < end or end == 5:
            return False
        name = bytes(unsent[5:end])
        if not name.startswith(HANDSHAKE):
            raise _only_http("TLS of the script's own")
        del unsent[:end]
        self.begin_tls(name.removeprefix(HANDSHAKE).decode())
        return bool(unsent)

    def _begin(self, match, fields):
        method, target, minor = match[1].decode(), match[2].decode("latin-1"), match[3]
        if method == "CONNECT" or not target.startswith("/") and target != "*":
            raise OSError(
                errno.EPROTONOSUPPORT,
                f"{method} {target} is for a proxy, and a function uses none: unset HTTP_PROXY, "
                "HTTPS_PROXY and ALL_PROXY",
            )
        sent, length, has_chunks, expects_continue, is_last = [], None, False, False, minor == b"0"
        for name, value in fields:
            if name == "content-length":
                if not value.isdigit() or length not in (None, int(value)):
                    raise _invalid(f"content-length: {value!r}")
                length = int(value)
            elif name == "upgrade":
                raise _only_http(f"the upgrade to {value.decode('latin-1')}")
            elif name in _OF_CONNECTION:
                value = value.lower()
                if name == "transfer-encoding":
                    if value != b"chunked":
                        raise _invalid(f"transfer-encoding: {value!r}")
                    has_chunks = True
                elif name == "host":
                    self._check_host(value.decode("latin-1"))
                elif name == "expect":
                    expects_continue = value == b"100-continue"
                elif name == "connection":
                    is_last = is_last or b"close" in value
                elif name == "te" and value == b"trailers":
                    sent.append((name, value))
                continue
            sent.append((name, value))
        if has_chunks and length is not None:
            raise _invalid("it has content-length and transfer-encoding")
        self._is_head, self._is_last, self._http_1_0 = method == "HEAD", is_last, minor == b"0"
        has_body = has_chunks or bool(length)
        default = 443 if self.scheme == "https" else 80
        host = f"[{self.host}]" if ":" in self.host else self.host
        authority = host if self.port == default else f"{host}:{self.port}"
        self._call = Call(
            method, self.scheme, authority, target, sent, has_body, self.connect_timeout
        )
        self._framing = _NONE
        if expects_continue and has_body:
            self._received += b"HTTP/1.1 100 Continue\r\n\r\n"
        if has_chunks:
            self._expects, self._left = _CHUNK, 0
        elif has_body:
            self._expects, self._left = _BODY, length
        else:
            self._finish([])

    def _check_host(self, field):
        name, _, port = field.rpartition(":")
        if not port.isdecimal():
            name = field
        if _plain(name) != _plain(self.host):
            raise OSError(
                errno.EPROTONOSUPPORT,
                f"the field Host: {field} names another server than {self.host}, which is "
                "connected: the node sends the name of the server that it connects to",
            )

    def _take_chunk_line(self) -> bool:
        unsent = self._unsent
        # After the data of a chunk comes the end of its line.
        if self._left < 0:
            if len(unsent) < 2:
                return False
            if unsent[:2] != b"\r\n":
                raise _invalid("a chunk is longer than its size")
            del unsent[:2]
            self._left = 0
            return True
        end = unsent.find(b"\r\n", 0, _CHUNK_LINE_MAX)
        if end < 0:
            if len(unsent) >= _CHUNK_LINE_MAX:
                raise _invalid("the line of a chunk is too long")
            return False
        if (match := _CHUNK_LINE.fullmatch(unsent[:end])) is None:
            raise _invalid(f"{bytes(unsent[:40])!r} is no size of a chunk")
        size = int(match[1], 16)
        del unsent[: end + 2]
        self._expects, self._left = (_CHUNK_DATA, size) if size else (_TRAILERS, 0)
        return True

    def _take_trailers(self) -> bool:
        unsent = self._unsent
        if unsent[:2] == b"\r\n":
            del unsent[:2]
            self._finish([])
            return True
        end = unsent.find(b"\r\n\r\n")
        if end < 0:
            if len(unsent) > _HEAD_MAX:
                raise _invalid(f"the trailers have more than {_HEAD_MAX} bytes")
            return False
        lines = bytes(unsent[:end]).split(b"\r\n")
        del unsent[: end + 4]
        self._finish(_fields(lines))
        return True

    # Responses

    def receive(self, most) -> bytes | None:
        """Returns bytes of a response, `b""` at the end, or None while there are none."""
        if not self._received and not self._fetch():
            return b"" if self._has_ended else None
        received = self._received
        if len(received) <= most:
            self._received = b""
            return received
        self._received = received[most:]
        return received[:most]

    def pollable_to_read(self):
        """Returns what to wait for before `receive` is called again, if anything will come."""
        return self._call.pollable_to_read() if self._call is not None else None

    @property
    def is_waited_for(self) -> bool:
        """Whether a request was begun whose response is not complete."""
        return self._call is not None

    def is_readable(self) -> bool:
        """Whether `receive` returns at once."""
        if self._received or self._has_ended:
            return True
        try:
            return self._call is not None and self._fetch()
        except OSError as error:
            # The reader receives it.
            self._failure = error
            return True

    _failure = None

    def _fetch(self) -> bool:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        call = self._call
        if call is None:
            return False
        try:
            call.begin()
            if self._framing == _NONE:
                if (head := call.head()) is None:
                    return False
                self._take_response_head(*head)
                if self._call is None:
                    return True
            return self._take_response_body() or bool(self._received)
        except OSError:
            self._fail()
            raise

    def _take_response_head(self, status, fields):
        lines = [b"HTTP/1.1 %d %s" % (status, _PHRASES.get(status, b""))]
        length = unlisted = _length(fields)
        for name, value in fields:
            if name == "content-length":
                if unlisted is None:
                    continue
                value, unlisted = b"%d" % length, None
            lines.append(b"%s: %s" % (name.encode(), value))
        has_body = not self._is_head and status not in (204, 304)
        if has_body and length is None:
            self._framing = _TO_END if self._http_1_0 else _CHUNKED
            if self._framing == _CHUNKED:
                lines.append(b"transfer-encoding: chunked")
        elif has_body:
            self._framing, self._to_come = _LENGTH, length
        if self._is_last or self._framing == _TO_END:
            lines.append(b"connection: close")
        self._received += b"\r\n".join((*lines, b"", b""))
        if not has_body or length == 0:
            self._end()

    def _take_response_body(self) -> bool:
        piece = self._call.read(PIECE)
        if piece is None:
            if self._framing == _LENGTH and self._to_come:
                raise ConnectionResetError(errno.ECONNRESET, "the response is cut off")
            if self._framing == _CHUNKED:
                self._received += b"0\r\n\r\n"
            self._end()
            return True
        if not piece:
            return False
        if self._framing == _LENGTH:
            self._to_come -= len(piece)
        elif self._framing == _CHUNKED:
            piece = b"%x\r\n%s\r\n" % (len(piece), piece)
        self._received = self._received + piece if self._received else piece
        if self._framing == _LENGTH and self._to_come <= 0:
            self._end()
        return True

    def _end(self):
        """Ends the call: its response is complete, even if the server has not read the request."""
        self._call.close()
        self._call = None
        self._has_ended = self._is_last or self._expects != _SENT or self._framing == _TO_END

    def close(self) -> None:
        """Abandons what is under way."""
        self._unsent.clear()
        self._received = b""
        self._has_ended = True
        if self._call is not None:
            self._call.close()
            self._call = None


# `ssl.SSLObject` sends this in the place of a ClientHello, before the server's name.
HANDSHAKE = b"TLS is the node's: "


def handshake(host: str) -> bytes:
    """Returns the record that begins `https` to this server."""
    text = HANDSHAKE + host.encode()
    return b"\x16\x03\x03" + len(text).to_bytes(2) + text


def _length(fields) -> int | None:
    """Returns the length that a response declares: once, or several times the same.

    Returns None for an invalid one: the response ends with the call's body then.
    """
    values = [value for name, value in fields if name == "content-length"]
    lengths = {part.strip(b" \t") for part in b",".join(values).split(b",")} if values else ()
    if len(lengths) != 1:
        return None
    (length,) = lengths
    # More digits are no number of 64 bits.
    return int(length) if length.isdigit() and len(length) < 20 else None


def _fields(lines):
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name[-1:] in b" \t" or line[:1] in b" \t":
            raise _invalid(f"{line[:40]!r} is no header field")
        fields.append((name.decode("latin-1").lower(), value.strip(b" \t")))
    return fields
