"""The module for componentize-py, which calls through the bindings of wasi:http.

httpx cannot run there, because the component has no sockets.
"""

import json

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports import outgoing_handler
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import (
    Fields,
    IncomingBody,
    IncomingRequest,
    OutgoingBody,
    OutgoingRequest,
    OutgoingResponse,
    ResponseOutparam,
    Scheme_Http,
)

from summary import of

PIECE = 4096


def get(authority, path):
    request = OutgoingRequest(Fields.from_list([]))
    request.set_scheme(Scheme_Http())
    request.set_authority(authority)
    request.set_path_with_query(path)
    with outgoing_handler.handle(request, None) as future:
        with future.subscribe() as ready:
            ready.block()
        told = future.get()
        # An `Ok` of the future has the result of the call.
        with told.value.value as response:
            body = response.consume()
            return read(body)


def read(body):
    pieces = []
    with body, body.stream() as stream:
        while True:
            try:
                pieces.append(stream.blocking_read(1 << 16))
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return b"".join(pieces)
                raise


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        port = request.path_with_query().rpartition("/")[2]
        body = of(json.loads(get(f"127.0.0.1:{port}", "/orders")))
        length = str(len(body)).encode()
        fields = [("content-type", b"application/json"), ("content-length", length)]
        response = OutgoingResponse(Fields.from_list(fields))
        outgoing = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        with outgoing.write() as stream:
            for start in range(0, len(body), PIECE):
                stream.blocking_write_and_flush(body[start : start + PIECE])
        OutgoingBody.finish(outgoing, None)
