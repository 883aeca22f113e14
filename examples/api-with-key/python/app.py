"""Stands before an API that wants a key: `GET /ID` answers with the API's item of this id, and
whoever asks needs no key."""

import json
import re
import sys
from urllib.parse import urlsplit

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports import monotonic_clock, outgoing_handler, poll
from wit_world.imports import store as config
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import (
    ErrorCode_ConnectionReadTimeout,
    ErrorCode_ConnectionTimeout,
    ErrorCode_ConnectionWriteTimeout,
    ErrorCode_DnsTimeout,
    ErrorCode_HttpResponseTimeout,
    Fields,
    IncomingRequest,
    IncomingResponse,
    Method_Get,
    OutgoingBody,
    OutgoingRequest,
    OutgoingResponse,
    ResponseOutparam,
    Scheme_Http,
    Scheme_Https,
)

# Timeout of a call of the API, in milliseconds, if the configuration has no `timeout_ms`.
TIMEOUT = 5000

# So many bytes an item has at most.
LARGEST_ITEM = 1 << 20

# Most bytes of one read, and of one `blocking_write_and_flush`.
CHUNK = 4096

TIMEOUTS = (
    ErrorCode_ConnectionReadTimeout,
    ErrorCode_ConnectionTimeout,
    ErrorCode_ConnectionWriteTimeout,
    ErrorCode_DnsTimeout,
    ErrorCode_HttpResponseTimeout,
)


class Refusal(Exception):
    """What the client gets in place of an item. Why is for the function's log, and never has the
    key."""

    def __init__(self, status: int, text: str, *headers: tuple[str, bytes]) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


def bad_gateway() -> Refusal:
    return Refusal(502, "the API gives no answer that is one")


def gateway_timeout() -> Refusal:
    return Refusal(504, "the API takes too long")


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        try:
            status, headers, body = 200, (), item(request)
        except Refusal as refusal:
            status, headers = refusal.status, refusal.headers
            body = json.dumps({"error": str(refusal)}, separators=(",", ":")).encode() + b"\n"
        respond(response_out, status, headers, body)


def item(request: IncomingRequest) -> bytes:
    if not isinstance(request.method(), Method_Get):
        raise Refusal(405, "only GET is answered", ("allow", b"GET"))
    # The key opens all of the API, so a client chooses an id and no path.
    name = (request.path_with_query() or "/").partition("?")[0].removeprefix("/")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise Refusal(404, "an id has 1 to 64 letters, digits, '-' and '_'")
    milliseconds = int(config.get("timeout_ms") or TIMEOUT)
    with monotonic_clock.subscribe_duration(milliseconds * 1_000_000) as late:
        return ask(name, request, late)


def ask(name: str, request: IncomingRequest, late: poll.Pollable) -> bytes:
    headers = [
        ("authorization", f"Bearer {setting('api_key')}".encode()),
        ("accept", b"application/json"),
    ]
    # The API's part of a trace belongs to that of the request.
    asked = request.headers()
    headers += [
        (name, asked.get(name)[0]) for name in ("traceparent", "tracestate") if asked.has(name)
    ]
    url = urlsplit(setting("api_url"))
    question = OutgoingRequest(Fields.from_list(headers))
    question.set_scheme(Scheme_Https() if url.scheme == "https" else Scheme_Http())
    question.set_authority(url.netloc)
    question.set_path_with_query(f"{url.path.rstrip('/')}/{name}")
    OutgoingBody.finish(question.body(), None)
    try:
        with outgoing_handler.handle(question, None) as coming:
            with coming.subscribe() as there:
                wait(there, late)
            answer = coming.get().value
        if isinstance(answer, Err):
            raise answer
    except Err as error:
        log(f"the API was not reached: {error.value}")
        raise (gateway_timeout() if isinstance(error.value, TIMEOUTS) else bad_gateway()) from None
    with answer.value as response:
        check(response)
        return read(response, late)


def check(response: IncomingResponse) -> None:
    status = response.status()
    if status == 200:
        return
    if status == 404:
        raise Refusal(404, "the API has no such item")
    log(f"the API answers {status}")
    if status in (429, 503):
        times = response.headers().get("retry-after")
        raise Refusal(
            503, "the API is asked too often", *(("retry-after", time) for time in times[:1])
        )
    # 401 and 403 too: that the key is refused is not the client's fault.
    raise bad_gateway()


def read(response: IncomingResponse, late: poll.Pollable) -> bytes:
    """All of the body, before anything is answered: one that breaks off is a 502, and no half
    item."""
    whole = bytearray()
    with response.consume() as incoming, incoming.stream() as stream, stream.subscribe() as there:
        while len(whole) <= LARGEST_ITEM:
            wait(there, late)
            try:
                whole += stream.read(CHUNK)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return bytes(whole)
                log("the API's answer broke off")
                raise bad_gateway() from None
    log("the API's answer is too large")
    raise bad_gateway()


def wait(ready: poll.Pollable, late: poll.Pollable) -> None:
    if 0 not in poll.poll([ready, late]):
        log("the API has not answered in time")
        raise gateway_timeout()


def setting(key: str) -> str:
    """A value of the configuration, or a secret: it is for the command line to say which."""
    value = config.get(key)
    if value is None:
        log(f"misconfigured: {key} is not set")
        raise Refusal(500, "the function is misconfigured")
    return value


def log(line: str) -> None:
    print(line, file=sys.stderr)


def respond(
    out: ResponseOutparam, status: int, headers: tuple[tuple[str, bytes], ...], body: bytes
) -> None:
    response = OutgoingResponse(
        Fields.from_list(
            [("content-type", b"application/json"), ("cache-control", b"no-store"), *headers]
        )
    )
    response.set_status_code(status)
    outgoing = response.body()
    # The head goes first; the body is written to the stream afterwards.
    ResponseOutparam.set(out, Ok(response))
    # The stream is a child of the body and must be gone before `finish`.
    with outgoing.write() as stream:
        for start in range(0, len(body), CHUNK):
            stream.blocking_write_and_flush(body[start : start + CHUNK])
    OutgoingBody.finish(outgoing, None)
