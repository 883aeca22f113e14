"""Requests that are made up, while the engine is built.

The interpreter changes code as it runs it, and remembers what it looked up. What is done here
before the engine is frozen is not done again, in memory of its own, by each fork.
"""

import gc
import inspect
import re
import sys
import types
from collections import OrderedDict

import componentize_py_runtime as runtime
from componentize_py_types import Err, Ok
from wit_world.imports import fresh, monotonic_clock, poll, streams
from wit_world.imports import types as http

from . import files, frozen
from .handles import _Finalizer

# So often is each done: code is made fit for what it meets at the second time it runs.
_TIMES = 8

_SCRIPTS = {
    "function.py": """
from faasw import Request, Response
GREETING = "hello"
class Greeter:
    def greet(self, name: str) -> str:
        return f"{GREETING} {name}"
def handler(request):
    request.headers.get("accept"), request.query.get("name")
    if request.method == "POST":
        request.text
        return Response.json({"path": request.path})
    return Response(Greeter().greet(request.url), headers={"x-a": "b"})
""",
    "simple.py": """
def handler(request):
    return f"hello {request.url}"
""",
    "asynchronous.py": """
async def handler(request):
    return f"hello {request.url}"
""",
    "wsgi.py": """
def app(environ, start_response):
    start_response("200 OK", [("content-type", "text/plain")])
    return [environ["wsgi.input"].read(), b"hello"]
""",
    "asgi.py": """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"hello"})
""",
}


def _resource(kind):
    made = kind.__new__(kind)
    made.handle = 0
    made.finalizer = _Finalizer(made, lambda *_: None, 0, 0)
    return made


def _answers(method):
    """What WASI answers to each call, by the call's number."""
    headers = [("host", b"example.org"), ("accept", b"*/*"), ("content-type", b"text/plain")]
    closed = Err(streams.StreamError_Closed())
    answers = {
        fresh.seed: (1, 2, 3, 4),
        monotonic_clock.subscribe_duration: _resource(poll.Pollable),
        poll.poll: [0],
        http.IncomingRequest.method: method,
        http.IncomingRequest.path_with_query: "/path?name=value",
        http.IncomingRequest.scheme: http.Scheme_Http(),
        http.IncomingRequest.authority: "example.org",
        http.IncomingRequest.headers: _resource(http.Fields),
        http.IncomingRequest.consume: Ok(_resource(http.IncomingBody)),
        http.IncomingBody.stream: Ok(_resource(streams.InputStream)),
        http.Fields.entries: headers,
        http.Fields.from_list.__func__: Ok(_resource(http.Fields)),
        http.OutgoingResponse.__init__: _resource(http.OutgoingResponse),
        http.OutgoingResponse.set_status_code: Ok(None),
        http.OutgoingResponse.body: Ok(_resource(http.OutgoingBody)),
        http.OutgoingBody.write: Ok(_resource(streams.OutputStream)),
        http.OutgoingBody.finish.__func__: Ok(None),
        http.ResponseOutparam.set.__func__: None,
        streams.InputStream.read: closed,
        streams.InputStream.blocking_read: closed,
        streams.OutputStream.check_write: Ok(1 << 16),
        streams.OutputStream.write: Ok(None),
        streams.OutputStream.flush: Ok(None),
    }
    return OrderedDict((_number_of(function), answer) for function, answer in answers.items())


def _number_of(function):
    (number,) = re.findall(r"call_import\((\d+)", inspect.getsource(function))
    return int(number)


def run(take, respond) -> None:
    """Has scripts taken and requests answered, and leaves nothing of either."""
    executed = {}
    sys.setprofile(lambda frame, event, _: executed.setdefault(id(frame.f_code), frame.f_code))
    _go_through(take, respond, 2)
    sys.setprofile(None)
    frozen.fill_holes()
    _lay_together(executed.values())
    _go_through(take, respond, _TIMES)


def _lay_together(executed):
    """Has the code that requests run in few pages, for it is written to as it is run."""
    functions = {id(code): [] for code in executed}
    for value in gc.get_objects():
        if isinstance(value, types.FunctionType) and id(value.__code__) in functions:
            functions[id(value.__code__)].append(value)
    for of_one in functions.values():
        for function in of_one:
            function.__code__ = function.__code__.replace()


def _go_through(take, respond, times):
    of_wasi = runtime.call_import
    before = set(sys.modules)
    path = list(sys.path)
    for name, text in _SCRIPTS.items():
        for turn in range(times):
            method = (http.Method_Get, http.Method_Post)[turn % 2]
            # A call of it is to the interpreter what one of the real one is: a function in C that
            # takes keywords. It gives what is there.
            runtime.call_import = _answers(method()).setdefault
            take([(name, text.encode())])
            respond(_resource(http.IncomingRequest), _resource(http.ResponseOutparam))
            sys.path[:] = path
            for loaded in set(sys.modules) - before:
                del sys.modules[loaded]
            files.forget()
    runtime.call_import = of_wasi
