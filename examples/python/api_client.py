"""Gives clients one part of an API without giving them its key: GET /ID returns the item ID."""

import json
import re
import sys
import urllib.error
import urllib.request

import faasw
from faasw import Response


def handler(request):
    # An id, and no path: the key may give access to more than items.
    item = request.path.removeprefix("/")
    if not re.fullmatch(r"[\w-]{1,64}", item, re.ASCII):
        return Response.json({"error": "no such item"}, 404)
    call = urllib.request.Request(
        f"{faasw.config['API_URL']}/items/{item}",
        headers={
            "authorization": f"Bearer {faasw.secrets['API_KEY']}",
            "accept": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(call, timeout=5) as answer:
            return Response.json(json.load(answer))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return Response.json({"error": "no such item"}, 404)
        print(f"the API answered {error.code}", file=sys.stderr)
    except OSError as error:
        print(f"the API does not answer: {error}", file=sys.stderr)
    return Response.json({"error": "the API does not work"}, 502)
