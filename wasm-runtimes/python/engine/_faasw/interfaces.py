"""The forms that a script's handler has, each as a function of a request and its response."""

import asyncio
import inspect
import io
import sys
from urllib.parse import unquote_to_bytes

from faasw import Request, Response

from . import aws_lambda, event_loop
from .exchange import Incoming, Outgoing, has_body


class NoHandler(Exception):
    """A script has nothing that takes requests."""


def handler_of(module, named=None):
    """What answers requests: a function of `Incoming` and `Outgoing`.

    `named` is the name of the application in the module, if the deployment gives it.
    """
    if named is not None:
        return _of_named(module, named)
    names = vars(module)
    apps = [name for name in ("app", "application") if names.get(name) is not None]
    for name in ("handler", "lambda_handler"):
        if (handler := names.get(name)) is not None and (callable(handler) or not apps):
            if not callable(handler):
                raise NoHandler(f"`{name}` is {type(handler).__name__}, and no function")
            if name == "lambda_handler" or _is_of_lambda(handler):
                return _of_lambda(handler)
            return _of_handler(handler)
    for name in apps:
        app = names[name]
        if not callable(app):
            raise NoHandler(f"`{name}` is {type(app).__name__}, and cannot be called")
        return _asgi(app) if _is_asgi(app) else _wsgi(app)
    raise NoHandler(
        "there is no handler: define `def handler(request)`, `def lambda_handler(event, context)`, "
        "or `app` for WSGI or ASGI"
    )


def _of_named(module, named):
    """Finds an application by its name, such as `app`, `web.app` or a factory `create_app`."""
    app = module
    for name in named.split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            raise NoHandler(f"there is no `{named}` in {module.__name__}.py") from None
    if not callable(app):
        raise NoHandler(f"`{named}` is {type(app).__name__}, and cannot be called")
    if _required(app) == []:
        app = app()
        if not callable(app):
            raise NoHandler(f"`{named}()` gives {type(app).__name__}, which cannot be called")
    required = _required(app) or ()
    if len(required) == 1:
        return _of_handler(app)
    if len(required) == 2:
        return _of_lambda(app) if _is_named_for_lambda(app, named, required) else _wsgi(app)
    return _asgi(app) if _is_asgi(app) else _wsgi(app)


def _is_named_for_lambda(app, named, required) -> bool:
    """Returns whether an application with two arguments is a handler of Lambda.

    An application of WSGI has two arguments, too, with any names.
    """
    if _is_async(app):
        return True
    first, second = required
    if first == "environ" or second == "start_response":
        return False
    return first == "event" or second == "context" or named.endswith("handler")


def _required(function) -> list[str] | None:
    """The names of the arguments that a call must have; None if they are not known."""
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(part.kind == part.VAR_POSITIONAL for part in taken):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        part.name for part in taken if part.kind in positional and part.default is part.empty
    ]


def _is_async(function) -> bool:
    call = getattr(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _is_of_lambda(function) -> bool:
    """Whether it takes an event and a context, and is no application of WSGI."""
    required = _required(function)
    return required is not None and len(required) == 2 and required[1] != "start_response"


def _is_asgi(app) -> bool:
    return _is_async(app) or len(_required(app) or ()) == 3


# `def lambda_handler(event, context)`


def _of_lambda(handler):
    def answer(incoming, outgoing):
        value = handler(*aws_lambda.arguments(incoming))
        if inspect.isawaitable(value):
            value = event_loop.run(_awaited(value))
        _send_bytes(*aws_lambda.response(value), outgoing)

    return answer


async def _awaited(value):
    return await value


# `def handler(request) -> Response`


def _of_handler(handler):
    if _is_async(handler):

        def answer(incoming, outgoing):
            event_loop.run(_answer(handler, incoming, outgoing))

    else:

        def answer(incoming, outgoing):
            response = handler(Request(incoming))
            if inspect.isawaitable(response):
                event_loop.run(_send_awaited(response, outgoing))
            else:
                _send(response, outgoing)

    return answer


async def _answer(handler, incoming, outgoing):
    await _send_awaited(handler(Request(incoming)), outgoing)


async def _send_awaited(response, outgoing):
    response = await response
    pieces = response.body if isinstance(response, Response) else None
    if not hasattr(pieces, "__aiter__"):
        _send(response, outgoing)
        return
    outgoing.start(response.status, _fields(response))
    async for piece in pieces:
        await outgoing.write_in(event_loop.the_loop(), _bytes(piece))
        outgoing.flush()
    outgoing.end()


def _send(value, outgoing):
    if isinstance(value, str):
        _send_bytes(200, [_IS_TEXT], value.encode(), outgoing)
    elif isinstance(value, (bytes, bytearray)):
        _send_bytes(200, [], bytes(value), outgoing)
    elif isinstance(value, Response):
        _send_response(value, outgoing)
    elif isinstance(value, (dict, list)):
        _send_response(Response.json(value), outgoing)
    elif value is None:
        _send_bytes(200, [], b"", outgoing)
    else:
        raise TypeError(
            f"a handler gave {type(value).__name__}: it may give a Response, text, bytes, "
            "or a dict or list, which is sent as JSON"
        )


_IS_TEXT = ("content-type", b"text/plain; charset=utf-8")


def _send_response(response, outgoing):
    body = response.body
    fields = _fields(response)
    if isinstance(body, str):
        if not any(name == "content-type" for name, _ in fields):
            fields.append(_IS_TEXT)
        _send_bytes(response.status, fields, body.encode(), outgoing)
    elif body is None or isinstance(body, (bytes, bytearray, memoryview)):
        _send_bytes(response.status, fields, bytes(body or b""), outgoing)
    elif hasattr(body, "__aiter__"):
        raise TypeError("an asynchronous body needs an asynchronous handler: `async def`")
    else:
        pieces = iter(body)
        outgoing.start(response.status, fields)
        for piece in pieces:
            outgoing.write(_bytes(piece))
            outgoing.flush()
        outgoing.end()


def _send_bytes(status, fields, body, outgoing):
    if has_body(status) and not any(name == "content-length" for name, _ in fields):
        fields.append(("content-length", b"%d" % len(body)))
    outgoing.start(status, fields)
    outgoing.write(body)
    outgoing.end()


def _fields(response):
    return [(name, value.encode("latin-1")) for name, value in response.headers.pairs()]


def _bytes(piece):
    return piece.encode() if isinstance(piece, str) else piece


# WSGI, PEP 3333


class _Input:
    """`wsgi.input`: a file of the request's body, which is read as it comes."""

    def __init__(self, incoming):
        self._incoming = incoming
        # A piece of the body, and how much of it is read.
        self._piece = b""
        self._at = 0

    def read(self, size=-1):
        size = sys.maxsize if size is None or size < 0 else size
        pieces = []
        while size > 0 and self._has_more():
            piece = self._piece[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def readline(self, size=-1):
        size = sys.maxsize if size is None or size < 0 else size
        pieces = []
        while size > 0 and self._has_more():
            end = self._piece.find(b"\n", self._at, self._at + size) + 1
            piece = self._piece[self._at : end or self._at + size]
            self._at += len(piece)
            size -= len(piece)
            pieces.append(piece)
            if end:
                break
        return b"".join(pieces)

    def readlines(self, hint=-1):
        return list(self)

    def __iter__(self):
        while line := self.readline():
            yield line

    def _has_more(self):
        if self._at == len(self._piece):
            self._piece, self._at = self._incoming.read(), 0
        return self._piece


# Most bytes of a body that has no length: an application of WSGI reads as many as
# CONTENT_LENGTH says, so they are counted first.
_UNCOUNTED = 16 * 1024 * 1024
# A request's content has no meaning with these methods (RFC 9110, section 9.3).
_WITHOUT_CONTENT = ("GET", "HEAD")


def _count(environ, incoming) -> bool:
    """Reads a body without a length, and sets its length. Returns False if it is too large."""
    body = io.BytesIO()
    try:
        while piece := incoming.read():
            body.write(piece)
            if body.tell() > _UNCOUNTED:
                return False
    except MemoryError:
        return False
    environ["CONTENT_LENGTH"] = str(body.tell())
    body.seek(0)
    environ["wsgi.input"] = body
    return True


_TOO_LARGE = (
    b"The request has no content-length, and its body is larger than 16 MiB or than the "
    b"function's memory. Send a content-length.\n"
)


def _wsgi(app):
    def answer(incoming: Incoming, outgoing: Outgoing):
        head = None

        def start():
            nonlocal head
            if head is None:
                raise RuntimeError("the application called no start_response")
            if not outgoing.is_started:
                outgoing.start(*head)

        def write(data):
            if data:
                start()
                outgoing.write(data)

        def start_response(status, headers, exc_info=None):
            nonlocal head
            if exc_info is not None:
                try:
                    if outgoing.is_started:
                        raise exc_info[1].with_traceback(exc_info[2])
                finally:
                    exc_info = None
            elif head is not None:
                raise AssertionError("start_response was called before")
            fields = [(name.lower(), value.encode("latin-1")) for name, value in headers]
            head = int(status[:3]), fields
            return write

        environ = _environ(incoming)
        is_counted = "CONTENT_LENGTH" in environ or environ["REQUEST_METHOD"] in _WITHOUT_CONTENT
        if not is_counted and not _count(environ, incoming):
            _send_bytes(413, [_IS_TEXT], _TOO_LARGE, outgoing)
            return
        body = app(environ, start_response)
        try:
            for piece in body:
                write(piece)
            start()
            outgoing.end()
        finally:
            if hasattr(body, "close"):
                body.close()

    return answer


def _server(incoming):
    """Host and port that were asked for."""
    authority = incoming.authority()
    host, _, port = authority.rpartition(":")
    if not port.isdecimal():
        host, port = authority, "443" if incoming.scheme() == "https" else "80"
    return host.strip("[]"), port


def _environ(incoming):
    target = incoming.target()
    path, _, query = target.partition("?")
    scheme = incoming.scheme()
    host, port = _server(incoming)
    fields = incoming.fields()
    prefix = incoming.prefix()
    environ = {
        "REQUEST_METHOD": incoming.method(),
        "SCRIPT_NAME": prefix,
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": prefix + target,
        "SERVER_NAME": host,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": _Input(incoming),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": True,
    }
    for name, value in fields:
        # One with `_` would pass for another one.
        if not name.replace("-", "").isalnum():
            continue
        name = name.upper().replace("-", "_")
        if name not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            name = f"HTTP_{name}"
        value = value.decode("latin-1")
        environ[name] = f"{environ[name]},{value}" if name in environ else value
    return environ


# ASGI 3, https://asgi.readthedocs.io


class _Lifespan:
    """What an application does before its first request, and keeps for all of them."""

    def __init__(self, app):
        self._app = app
        self.state = {}
        self._task = None

    async def start(self):
        loop = event_loop.the_loop()
        started = loop.create_future()
        messages = [{"type": "lifespan.startup"}]

        async def receive():
            if messages:
                return messages.pop()
            # A function is never told to stop.
            return await loop.create_future()

        async def send(message):
            if message["type"] == "lifespan.startup.failed":
                started.set_exception(RuntimeError(message.get("message") or "startup failed"))
            elif message["type"] == "lifespan.startup.complete":
                started.set_result(True)

        scope = {"type": "lifespan", "asgi": _VERSION, "state": self.state}

        async def run():
            await self._app(scope, receive, send)

        self._task = loop.create_task(run())

        def ended(task):
            # Whoever knows no lifespan says so by any error; that is no failure.
            if not started.done():
                started.set_result(False)
            task.cancelled() or task.exception()

        self._task.add_done_callback(ended)
        await started


_VERSION = {"version": "3.0", "spec_version": "2.4"}


def _asgi(app):
    lifespan = _Lifespan(app)
    # `event_loop.run` would cancel the lifespan's task, which waits for the rest of its messages.
    event_loop.the_loop().run_until_complete(lifespan.start())

    def answer(incoming, outgoing):
        event_loop.run(_call_asgi(app, lifespan.state, incoming, outgoing))

    return answer


async def _call_asgi(app, state, incoming, outgoing):
    loop = event_loop.the_loop()
    head = None
    is_read = is_answered = False
    answered = loop.create_future()

    async def receive():
        nonlocal is_read
        if is_read:
            # That a client has gone is only seen by writing to it. Who waits for it while nothing
            # else is to come is told so, rather than for ever waiting.
            await loop.unless_stuck(answered)
            return {"type": "http.disconnect"}
        while (piece := incoming.read_what_is_there()) == b"":
            await loop.until(incoming.pollable())
        is_read = piece is None
        return {"type": "http.request", "body": piece or b"", "more_body": not is_read}

    async def send(message):
        nonlocal head, is_answered
        kind = message["type"]
        if is_answered:
            raise RuntimeError(f"{kind} after the response has ended")
        if kind == "http.response.start":
            if head is not None:
                raise RuntimeError("http.response.start was sent before")
            fields = message.get("headers", ())
            fields = [(bytes(name).decode("latin-1").lower(), bytes(value)) for name, value in fields]
            head = message["status"], fields
        elif kind == "http.response.body":
            if head is None:
                raise RuntimeError("http.response.body before http.response.start")
            more = message.get("more_body", False)
            if not outgoing.is_started:
                outgoing.start(*head)
            if body := message.get("body", b""):
                await outgoing.write_in(loop, body)
            if more:
                outgoing.flush()
                await asyncio.sleep(0)
            else:
                is_answered = True
                outgoing.end()
                answered.done() or answered.set_result(None)
        else:
            raise RuntimeError(f"{kind} is not known")

    await app(_scope(incoming, state), receive, send)
    if not is_answered:
        raise RuntimeError("the application ended without a response")


def _scope(incoming, state):
    target = incoming.target()
    path, _, query = target.partition("?")
    host, port = _server(incoming)
    fields = incoming.fields()
    # By ASGI, the path contains the root path, unlike WSGI's PATH_INFO.
    prefix = incoming.prefix()
    path = prefix + path
    return {
        "type": "http",
        "asgi": _VERSION,
        "http_version": "1.1",
        "method": incoming.method(),
        "scheme": incoming.scheme(),
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "root_path": prefix,
        "headers": [(name.encode("latin-1"), value) for name, value in fields],
        "client": None,
        "server": (host, int(port)),
        "state": dict(state),
    }
