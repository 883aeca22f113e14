"""The application for uvicorn."""

from work import answer


async def app(scope, receive, send):
    body = answer(scope["path"])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
