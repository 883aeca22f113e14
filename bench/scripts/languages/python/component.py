"""The module for componentize-py."""

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import (
    Fields,
    IncomingRequest,
    OutgoingBody,
    OutgoingResponse,
    ResponseOutparam,
)

from work import answer

PIECE = 4096


def read(request):
    pieces = []
    body = request.consume()
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
        content_type, body = answer(read(request))
        length = str(len(body)).encode()
        fields = [("content-type", content_type.encode()), ("content-length", length)]
        response = OutgoingResponse(Fields.from_list(fields))
        outgoing = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        with outgoing.write() as stream:
            for start in range(0, len(body), PIECE):
                stream.blocking_write_and_flush(body[start : start + PIECE])
        OutgoingBody.finish(outgoing, None)
