"""A function in Python: one `wasi:http/incoming-handler`."""

import secrets

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import (
    Fields,
    IncomingRequest,
    Method_Other,
    OutgoingBody,
    OutgoingResponse,
    ResponseOutparam,
)

# Most bytes of one read, and of one `blocking_write_and_flush`.
CHUNK = 4096

# Stays at 1: every request meets the state that the build left.
count = 0


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        global count
        count += 1

        echo = b", ".join(request.headers().get("x-echo"))
        head = [
            f"{method(request)} {request.path_with_query() or '/'}",
            f"x-echo {echo.decode('latin-1')}",
            f"random {secrets.token_hex(16)}",
            f"count {count}",
            "",
            "",
        ]
        answer = "\n".join(head).encode() + body(request)

        headers = Fields.from_list([("content-type", b"text/plain; charset=utf-8")])
        response = OutgoingResponse(headers)
        outgoing = response.body()
        # The head goes first; the body is written to the stream afterwards.
        ResponseOutparam.set(response_out, Ok(response))
        # The stream is a child of the body and must be gone before `finish`.
        with outgoing.write() as stream:
            for start in range(0, len(answer), CHUNK):
                stream.blocking_write_and_flush(answer[start : start + CHUNK])
        OutgoingBody.finish(outgoing, None)


def method(request: IncomingRequest) -> str:
    method = request.method()
    if isinstance(method, Method_Other):
        return method.value
    # `Method_Get` and so on.
    return type(method).__name__.removeprefix("Method_").upper()


def body(request: IncomingRequest) -> bytes:
    chunks = []
    with request.consume() as incoming, incoming.stream() as stream:
        while True:
            try:
                chunks.append(stream.blocking_read(CHUNK))
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return b"".join(chunks)
                raise
