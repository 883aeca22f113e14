"""Handlers of AWS Lambda: API Gateway's events and responses of HTTP APIs, format 2.0."""

import base64
import json
import os
import sys
import time
import uuid
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from wit_world.imports import grants

# A function cannot know the node's limits. Its CPU time is limited to 10 s by default.
_SECONDS = 10
_TEXTS = ("application/json", "application/xml", "application/javascript")
_FORM = "application/x-www-form-urlencoded"


class Context:
    """What Lambda tells a function about its invocation."""

    function_version = "$LATEST"
    identity = client_context = None

    def __init__(self, request_id: str):
        self._end = time.monotonic() + _SECONDS
        self.aws_request_id = request_id
        self.function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", _name())
        self.memory_limit_in_mb = str(grants.memory_limit() >> 20)
        self.invoked_function_arn = (
            f"arn:aws:lambda:us-east-1:000000000000:function:{self.function_name}"
        )
        self.log_group_name = f"/aws/lambda/{self.function_name}"
        self.log_stream_name = "faasw"

    def get_remaining_time_in_millis(self) -> int:
        """The rest of 10 s, because the node's limits are not known here."""
        return max(0, int((self._end - time.monotonic()) * 1000))


def _name():
    """The function's name, or its file's if it has a host of its own."""
    prefix = os.environ.get("FAASW_BASE_PATH", "").strip("/")
    return prefix or os.path.basename(sys.argv[0]).removesuffix(".py")


def arguments(incoming):
    """Returns the event and the context of a request."""
    fields, cookies = {}, []
    for name, value in incoming.fields():
        value = value.decode("latin-1")
        if name == "cookie":
            cookies += [cookie for cookie in value.split("; ") if cookie]
        else:
            fields[name] = f"{fields[name]},{value}" if name in fields else value
    path, _, query = incoming.target().partition("?")
    now = datetime.now(UTC)
    request_id = fields.get("x-request-id") or str(uuid.uuid4())
    host = incoming.authority()
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": fields,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": _name(),
            "domainName": host,
            "domainPrefix": host.partition(".")[0],
            "http": {
                "method": incoming.method(),
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "",
                "userAgent": fields.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(now.timestamp() * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query:
        values = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            values[name] = f"{values[name]},{value}" if name in values else value
        event["queryStringParameters"] = values
    if body := incoming.read_all():
        event["body"], event["isBase64Encoded"] = _text_of(body, fields.get("content-type", ""))
    return event, Context(request_id)


def _text_of(body, content_type):
    kind = content_type.partition(";")[0].strip().lower()
    is_text = kind.startswith("text/") or kind.endswith(("+json", "+xml"))
    if is_text or kind in _TEXTS or kind in ("", _FORM):
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def response(value):
    """Returns status, header fields and body of a handler's result.

    Raises TypeError or ValueError if the result describes no response.
    """
    if not isinstance(value, dict) or "statusCode" not in value:
        body = value if isinstance(value, str) else json.dumps(value)
        return 200, [("content-type", b"application/json")], body.encode()
    status = int(value["statusCode"])
    headers = (value.get("headers") or {}).items()
    fields = [(str(name).lower(), _field(one)) for name, one in headers]
    for name, several in (value.get("multiValueHeaders") or {}).items():
        fields = [field for field in fields if field[0] != str(name).lower()]
        fields += [(str(name).lower(), _field(one)) for one in several]
    fields += [("set-cookie", _field(cookie)) for cookie in value.get("cookies") or ()]
    body = value.get("body")
    if body is None:
        body = b""
    elif isinstance(body, str):
        is_encoded = value.get("isBase64Encoded")
        body = base64.b64decode(body, validate=True) if is_encoded else body.encode()
    else:
        raise TypeError(
            f"the body of a Lambda response is text, not {type(body).__name__}: use json.dumps"
        )
    if body and not any(name == "content-type" for name, _ in fields):
        fields.append(("content-type", b"application/json"))
    return status, fields, body


def _field(value):
    if isinstance(value, bool):
        value = "true" if value else "false"
    return str(value).encode("latin-1")
