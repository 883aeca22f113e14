"""Takes webhooks whose senders sign the body with a secret, as GitHub does:
deploy with --env SECRET=..."""

import hmac
import logging
import os

from faasw import Request, Response

SECRET = os.environ.get("SECRET", "").encode()

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")


def handler(request: Request) -> Response:
    if not SECRET:
        return Response("there is no SECRET\n", 500)
    code = hmac.new(SECRET, request.body, "sha256").hexdigest()
    given = request.headers.get("x-hub-signature-256", "")
    if not hmac.compare_digest(f"sha256={code}".encode(), given.encode()):
        return Response("this is not signed by whom we know\n", 401)
    event = request.json()
    logging.info("%s %s", request.headers.get("x-github-event"), event.get("action"))
    return Response(status=204)
