"""Turns CSV into a JSON value for each line, while it comes: no body is too long."""

import codecs
import csv
import json
from collections.abc import Iterable, Iterator

from faasw import Request, Response


def lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Lines of text, whatever pieces it comes in; their ends stay, since fields may have them."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        for line in whole:
            yield line + "\n"
    if rest := rest + decoder.decode(b"", final=True):
        yield rest


def values(request: Request) -> Iterator[str]:
    for row in csv.DictReader(lines(request), strict=True):
        yield json.dumps(row, ensure_ascii=False) + "\n"


def handler(request: Request) -> Response:
    if request.method != "POST":
        return Response("send CSV\n", 405, {"allow": "POST"})
    return Response(values(request), content_type="application/jsonl")
