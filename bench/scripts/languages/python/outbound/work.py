"""Gets JSON with httpx from the upstream server whose port is the path, for faasw and uvicorn.

The client is created at the top level, as its documentation recommends.
"""

import httpx

from summary import of

client = httpx.Client()


def answer(path):
    port = path.rpartition("/")[2]
    return of(client.get(f"http://127.0.0.1:{port}/orders").json())
