"""The handler for faasw that calls with the standard library alone."""

import json
from http.client import HTTPConnection

from faasw import Response

from summary import of


def handler(request):
    connection = HTTPConnection("127.0.0.1", int(request.path.rpartition("/")[2]))
    connection.request("GET", "/orders")
    return Response(of(json.load(connection.getresponse())), content_type="application/json")
