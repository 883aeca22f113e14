"""Outbound HTTP calls over `wasi:http`.

A `Call` owns the WASI resources of one request and its response. `close_all` closes the calls that
a request of the function leaves open.
"""

import errno
import socket

from componentize_py_types import Err
from wit_world.imports import monotonic_clock, outgoing_handler, poll, types
from wit_world.imports.streams import StreamError_Closed

# Maximum bytes of one read: what the node keeps of an answer is not much larger.
PIECE = 64 * 1024

# A request is sent when it is complete, when its response is read, or when this many bytes of its
# body are present. Most requests are sent in one step of the node then.
_SENT_FROM = 64 * 1024

_NANOSECONDS = 1_000_000_000

_METHODS = {
    name: getattr(types, f"Method_{name.capitalize()}")()
    for name in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")
}
_SCHEMES = {"http": types.Scheme_Http(), "https": types.Scheme_Https()}

_open: set["Call"] = set()


class Call:
    """A request and its response.

    No method waits. `pollable_to_write` and `pollable_to_read` return what to wait for.
    """

    def __init__(self, method, scheme, authority, path, fields, has_body, connect_timeout):
        self.origin = f"{scheme}://{authority}"
        self._connect_timeout = connect_timeout
        self._written = 0
        self._future = self._body = self._output = self._response_body = self._input = None
        try:
            request = types.OutgoingRequest(types.Fields.from_list(fields))
        except Err:
            raise _refused_fields(fields) from None
        self._request = request
        # Each setter is a call of the host: the defaults are GET and https.
        try:
            if method != "GET":
                request.set_method(_METHODS.get(method) or types.Method_Other(method))
            if scheme != "https":
                request.set_scheme(_SCHEMES[scheme])
            request.set_authority(authority)
            request.set_path_with_query(path)
        except Err:
            request.__exit__(None, None, None)
            raise OSError(
                errno.EINVAL, f"{method} {self.origin}{path} cannot be sent: its URL is invalid"
            ) from None
        if has_body:
            self._body = request.body()
            self._output = self._body.write()
        _open.add(self)

    def begin(self) -> None:
        """Sends the request, and the present part of its body."""
        request, self._request = self._request, None
        if request is None:
            return
        options = None
        if self._connect_timeout:
            options = types.RequestOptions()
            options.set_connect_timeout(int(self._connect_timeout * _NANOSECONDS))
        try:
            self._future = outgoing_handler.handle(request, options)
        except Err as error:
            self.close()
            raise _failure(error.value, self.origin) from None

    def write(self, data) -> int:
        """Takes bytes of the body, and returns how many it took.

        Raises BrokenPipeError if the server takes no more of it.
        """
        if self._output is None:
            raise _not_taken(self.origin)
        try:
            taken = min(self._output.check_write(), len(data))
            if taken:
                self._output.write(bytes(data[:taken]))
        except Err:
            self._drop_output()
            raise _not_taken(self.origin) from None
        self._written += taken
        if self._written >= _SENT_FROM or taken < len(data):
            self.begin()
        return taken

    def finish(self, trailers) -> None:
        """Ends the body, and sends the request."""
        if self._output is not None:
            self._output.__exit__(None, None, None)
            body, self._output, self._body = self._body, None, None
            fields = types.Fields.from_list(trailers) if trailers else None
            try:
                types.OutgoingBody.finish(body, fields)
            except Err as error:
                self.close()
                raise _failure(error.value, self.origin) from None
        self.begin()

    def head(self):
        """Returns status and header fields, or None while there is no answer."""
        result = self._future.get()
        if result is None:
            return None
        self._future.__exit__(None, None, None)
        self._future = None
        # The first of the two results only reports that the answer was taken before.
        answer = result.value
        if isinstance(answer, Err):
            self.close()
            raise _failure(answer.value, self.origin)
        with answer.value as response:
            status = response.status()
            with response.headers() as headers:
                fields = headers.entries()
            self._response_body = response.consume()
        self._input = self._response_body.stream()
        return status, fields

    def read(self, most) -> bytes | None:
        """Returns present bytes of the response body, or None at its end."""
        try:
            return self._input.read(most)
        except Err as error:
            reason = error.value
        if isinstance(reason, StreamError_Closed):
            self.close()
            return None
        with reason.value as of_stream:
            code = types.http_error_code(of_stream)
        self.close()
        raise _failure(code, self.origin)

    def pollable_to_write(self):
        return self._output.subscribe() if self._output is not None else None

    def pollable_to_read(self):
        if self._future is not None:
            return self._future.subscribe()
        return self._input.subscribe() if self._input is not None else None

    def close(self) -> None:
        """Closes what is left. A stream is closed before the body that it belongs to."""
        _open.discard(self)
        self._drop_output()
        for name in ("_request", "_future", "_input", "_response_body"):
            if (part := getattr(self, name)) is not None:
                setattr(self, name, None)
                part.__exit__(None, None, None)

    def _drop_output(self):
        for part in (self._output, self._body):
            if part is not None:
                part.__exit__(None, None, None)
        self._output = self._body = None


def close_all() -> None:
    """Closes the calls that a request of the function leaves open."""
    for call in list(_open):
        call.close()


def wait(pollable, timeout: float | None) -> bool:
    """Waits until the pollable is ready, and closes it. Returns False after `timeout` seconds."""
    with pollable:
        if timeout is None:
            pollable.block()
            return True
        if pollable.ready():
            return True
        if timeout <= 0:
            return False
        with monotonic_clock.subscribe_duration(int(timeout * _NANOSECONDS)) as timer:
            return 0 in poll.poll([pollable, timer])


def poll_once(pollables, timeout: float | None) -> None:
    """Waits until one of the pollables is ready, at most `timeout` seconds, and closes them."""
    waited = list(pollables)
    if timeout is not None:
        waited.append(monotonic_clock.subscribe_duration(int(timeout * _NANOSECONDS)))
    try:
        poll.poll(waited)
    finally:
        for pollable in waited:
            pollable.__exit__(None, None, None)


# Failures of calls: exception class, error number, and what to do about it. The name that
# docs/outbound.md has is the class's, with hyphens.

_OF_TLS = "TLS"
_OF_NAME = "name"
_REASONS = {
    "DNS-timeout": (TimeoutError, errno.ETIMEDOUT, "no name server has answered"),
    "DNS-error": (_OF_NAME, socket.EAI_NONAME, "the name cannot be resolved"),
    "destination-not-found": (_OF_NAME, socket.EAI_NONAME, "the name does not exist"),
    "destination-unavailable": (OSError, errno.EHOSTUNREACH, "the server cannot be reached"),
    "destination-IP-prohibited": (
        ConnectionRefusedError,
        errno.ECONNREFUSED,
        "all its addresses are private, special or the host's own: the operator opens private ones "
        "with `serve --allow-private`",
    ),
    "destination-IP-unroutable": (OSError, errno.ENETUNREACH, "there is no route to the server"),
    "connection-refused": (ConnectionRefusedError, errno.ECONNREFUSED, "the server refused it"),
    "connection-terminated": (ConnectionResetError, errno.ECONNRESET, "the server closed it"),
    "connection-timeout": (TimeoutError, errno.ETIMEDOUT, "no connection was made in time"),
    "connection-read-timeout": (TimeoutError, errno.ETIMEDOUT, "the response stopped"),
    "connection-write-timeout": (TimeoutError, errno.ETIMEDOUT, "the server stopped reading"),
    "connection-limit-reached": (
        ConnectionError,
        errno.EAGAIN,
        "too many calls are open: close responses that are not needed",
    ),
    "TLS-protocol-error": (_OF_TLS, 1, "TLS with the server failed"),
    "TLS-certificate-error": (
        _OF_TLS,
        1,
        "certificate verify failed: the node trusts Mozilla's authorities and those of "
        "`serve --egress-ca FILE`",
    ),
    "TLS-alert-received": (_OF_TLS, 1, "the server ended TLS"),
    "HTTP-request-denied": (
        ConnectionRefusedError,
        errno.ECONNREFUSED,
        "no grant allows it: deploy with --allow-outbound {origin} (initialisation and warm-up "
        "requests cannot call)",
    ),
    "HTTP-response-timeout": (TimeoutError, errno.ETIMEDOUT, "there was no response in time"),
    "HTTP-response-incomplete": (ConnectionResetError, errno.ECONNRESET, "the response is cut off"),
    "loop-detected": (
        ConnectionError,
        errno.ELOOP,
        "the request passed through too many functions",
    ),
}


def _spelled(code) -> str:
    """Returns the name of an error code as WIT has it, such as `HTTP-request-denied`."""
    name = type(code).__name__.partition("_")[2]
    words = "".join(f"-{letter}" if letter.isupper() else letter for letter in name)[1:].lower()
    for upper in ("dns", "http", "tls", "ip", "uri"):
        words = "-".join(upper.upper() if word == upper else word for word in words.split("-"))
    return words


def _failure(code, origin) -> OSError:
    """Returns the exception for an error code of WASI."""
    name = "internal-error" if code is None else _spelled(code)
    kind, number, reason = _REASONS.get(name, (ConnectionError, errno.EPROTO, None))
    detail = getattr(code, "value", None)
    if reason is not None:
        reason = reason.format(origin=origin)
    else:
        # The detail may be a text of the server with braces of its own.
        reason = detail if isinstance(detail, str) else "the node cannot complete it"
    text = f"the call to {origin} failed ({name}): {reason}"
    if kind is _OF_NAME:
        kind = socket.gaierror
    elif kind is _OF_TLS:
        import ssl

        is_verification = name == "TLS-certificate-error"
        kind = ssl.SSLCertVerificationError if is_verification else ssl.SSLError
    return kind(number, text)


def _not_taken(origin):
    return BrokenPipeError(errno.EPIPE, f"the call to {origin} takes no more of the request body")


def _refused_fields(fields) -> OSError:
    for name, value in fields:
        try:
            types.Fields.from_list([(name, value)]).__exit__(None, None, None)
        except Err as error:
            if isinstance(error.value, types.HeaderError_Forbidden):
                reason = "is the connection's, which is the node's"
            else:
                reason = f"is invalid: {value!r}"
            return OSError(errno.EINVAL, f"the header field {name!r} {reason}")
    return OSError(errno.EINVAL, "the header fields are invalid")
