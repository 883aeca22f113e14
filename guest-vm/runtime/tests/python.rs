//! The included Python engine, natively: its features for scripts, and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use support::fixture;
use support::scripts::{PYTHON, asked};

#[test]
fn scripts_find_the_documented_interfaces() {
    let api = fixture("tests/fixtures/scripts/api.py");
    let files: [(&str, &[u8]); 4] = [
        ("api.py", &api),
        ("data/__init__.py", b""),
        ("data/täxt.txt", "naïve\nzwei\n".as_bytes()),
        ("native.cpython-314-x86_64-linux-gnu.so", b"\x7fELF"),
    ];
    let call = asked("/a%20b/%C3%BC?x=1&x=2&y=%C3%A4&z=").method("POST");
    let call = call
        .header("x-sent", "s")
        .body("{\"a\": [\"ü\"]}".as_bytes());
    let lines = PYTHON.answer(&files, call);
    assert!(lines.lines().count() >= 14, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("ok ")), "{lines}");
}

#[test]
fn modules_are_found_by_their_names() {
    let main = b"
import sys
import helper, shop.cart, spaced.inner
from shop import VERSION, cart as again
from importlib import import_module, metadata
assert again is shop.cart and sys.modules['main'].helper is helper
import main
assert main is sys.modules['main']
def handler(request):
    late = import_module('shop.late')
    return f'{helper.NAME} {shop.cart.total()} {VERSION} {spaced.inner.X} \
        {late.Y} {metadata.version(\"thing\")}'
";
    let files: &[(&str, &[u8])] = &[
        ("main.py", main),
        ("helper.py", b"NAME = 'h'"),
        (
            "shop/__init__.py",
            b"from .cart import total\nVERSION = total()",
        ),
        ("shop/cart.py", b"def total():\n    return 3"),
        ("shop/late.py", b"Y = 'late'"),
        ("spaced/inner.py", b"X = 'x'"),
        (
            "thing-1.2.dist-info/METADATA",
            b"Metadata-Version: 2.1\nName: thing\nVersion: 1.2\n",
        ),
    ];
    assert_eq!(PYTHON.answer(files, asked("/")), "h 3 3 x late 1.2");
    // A script in a folder finds the modules beside it, and those at the root.
    let files: &[(&str, &[u8])] = &[
        (
            "src/app.py",
            b"import beside, root\ndef handler(request): return beside.A + root.B",
        ),
        ("src/beside.py", b"A = 'a'"),
        ("root.py", b"B = 'b'"),
    ];
    assert_eq!(PYTHON.answer(files, asked("/")), "ab");
}

#[test]
fn script_errors_are_reported_with_their_location() {
    for (text, wanted) in [
        ("def f(:\n  pass", "a.py:1: SyntaxError: "),
        ("\n\tx = 1\n  y = 2", "a.py:2: IndentationError: "),
        (
            "\n\nnothing.b",
            "a.py:3: NameError: name 'nothing' is not defined",
        ),
        ("\nraise TypeError('nö')", "a.py:2: TypeError: nö"),
        (
            "import flask",
            "a.py:1: ModuleNotFoundError: No module named 'flask'",
        ),
        ("import sys\nsys.exit('no')", "a.py:2: SystemExit: no"),
        ("raise KeyboardInterrupt", "a.py:1: KeyboardInterrupt"),
        (
            "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
            "a.py:3: a.E: <its text cannot be told>",
        ),
        (
            "x = 1",
            "a.py: there is no handler: define `def handler(request)`",
        ),
        ("handler = 1", "a.py: `handler` is int, and no function"),
        ("app = 'x'", "a.py: `app` is str, and cannot be called"),
        ("def f(): f()\nf()", "a.py:1: RecursionError: "),
        (
            "async def app(scope, receive, send):\n  await receive()\n  await \
             send({'type': 'lifespan.startup.failed', 'message': 'no db'})",
            "no db",
        ),
        (
            "import asyncio\nasyncio.run(asyncio.Event().wait())",
            "never comes",
        ),
        ("'\\ud800'.encode()", "a.py:1: UnicodeEncodeError: "),
        ("raise ValueError('\\ud800')", "a.py:1: ValueError: \\ud800"),
        (
            "class E(Exception):\n  def __str__(self): raise KeyboardInterrupt\nraise E",
            "a.py:3: a.E: <its text cannot be told>",
        ),
    ] {
        let report = PYTHON.refused(&[("a.py", text.as_bytes())]);
        assert!(report.contains(wanted), "{text}: {report}");
    }
    let report = PYTHON.refused(&[
        ("a.py", b"from b import f\nf()"),
        (
            "b.py",
            b"def f():\n  g()\ndef g(): raise RuntimeError('deep')",
        ),
    ]);
    assert!(
        report.starts_with("b.py:3: RuntimeError: deep\n"),
        "{report}"
    );
    assert!(report.contains("f (b.py:2)"), "{report}");
    assert!(report.contains("<module> (a.py:2)"), "{report}");
    assert!(!report.contains("_faasw"), "{report}");
    let report = PYTHON.refused(&[("a.py", b"x = '\xff'")]);
    assert!(report.contains("SyntaxError"), "{report}");
    let report = PYTHON.refused(&[("a.py", b"import b"), ("b.py", b"def")]);
    assert!(report.starts_with("b.py:1: SyntaxError: "), "{report}");
}

#[test]
fn a_handler_is_found_in_each_of_its_forms() {
    for text in [
        "def handler(request): return 'x'",
        "def handler(request): return b'x'",
        "async def handler(request): return 'x'",
        "from faasw import Response\ndef handler(request): return Response('x')",
        "from faasw import Response\ndef handler(request): return Response(c for c in 'x')",
        "from faasw import Response\nasync def pieces():\n  yield 'x'\nasync def handler(request): \
         return Response(pieces())",
        "class H:\n  def __call__(self, request): return 'x'\nhandler = H()",
        "class H:\n  async def __call__(self, request): return 'x'\nhandler = H()",
        "handler = lambda request: 'x'",
        "import logging\nhandler = logging.StreamHandler()\ndef app(environ, start_response):\n  \
         start_response('200 OK', [])\n  return [b'x']",
        // A partly read body, and a field of the connection.
        "from faasw import Response\ndef handler(request):\n  next(iter(request), None)\n  return \
         Response(b'x', headers={'connection': 'close'})",
        "def app(environ, start_response):\n  environ['wsgi.input'].read(1)\n  start_response('200 \
         OK', [])\n  return [b'x']",
        "class A:
  def __init__(self, scope, receive, send): self.scope, self.send = scope, send
  def __await__(self): return self.run().__await__()
  async def run(self):
    if self.scope['type'] == 'http':
      await self.send({'type': 'http.response.start', 'status': 200})
      await self.send({'type': 'http.response.body', 'body': b'x'})
app = A",
        // An application that waits for the client's disconnection, and tasks that remain.
        "import asyncio
done = []
async def late(send):
  await asyncio.sleep(0.001)
  await send({'type': 'http.response.body', 'body': b'x'})
async def app(scope, receive, send):
  if scope['type'] == 'http':
    await receive()
    await send({'type': 'http.response.start', 'status': 200})
    asyncio.create_task(late(send))
    await receive()",
        "def app(environ, start_response):\n  start_response('200 OK', [])\n  return [b'x']",
        "def application(environ, start_response):\n  start_response('200 OK', [])(b'x')\n  return \
         []",
        "def app(environ, start_response):\n  def pieces():\n    start_response('200 OK', [])\n    \
         yield b''\n    yield b'x'\n  return pieces()",
        "async def app(scope, receive, send):
  if scope['type'] == 'http':
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    await send({'type': 'http.response.body', 'body': b'x'})",
        "class A:
  async def __call__(self, scope, receive, send):
    assert scope['type'] == 'http'
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': b'x', 'more_body': True})
    await send({'type': 'http.response.body'})
    assert (await receive())['type'] == 'http.request'
    assert (await receive())['type'] == 'http.disconnect'
app = A()",
    ] {
        let call = asked("/").method("POST").body(b"some");
        let said = PYTHON.answer(&[("a.py", text.as_bytes())], call);
        assert_eq!(said, "x", "{text}");
    }
}

#[test]
fn servers_receive_the_documented_environment() {
    let wsgi = b"
import io
from wsgiref.validate import validator
def plain(environ, start_response):
    body = environ['wsgi.input']
    read = [body.read(2), body.readline(), body.readline(3), *list(iter(body.readline, b''))]
    told = [environ[name] for name in ('REQUEST_METHOD', 'PATH_INFO', 'QUERY_STRING', \
                                       'CONTENT_TYPE',
                                       'HTTP_X_A', 'SERVER_NAME', 'SERVER_PORT', 'wsgi.url_scheme')]
    start_response('207 Multi-Status', [('Content-Type', 'text/plain'), ('X-A', 'b')])
    return [repr((told, read)).encode()]
app = validator(plain)
";
    let call = asked("/%C3%BC?a=b").method("PUT").header("x-a", "1");
    let call = call
        .header("content-type", "text/x")
        .body(b"abc\ndefgh\nij");
    let ready = PYTHON.answered(&[("a.py", wsgi)], call);
    let told = String::from_utf8(ready.platform().response_body.to_vec()).unwrap();
    assert_eq!(
        told,
        "(['PUT', '/Ã¼', 'a=b', 'text/x', '1', 'example.org', '8080', 'http'], \
         [b'ab', b'c\\n', b'def', b'gh\\n', b'ij'])"
    );
    let asgi = b"
started = []
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        scope['state']['db'] = 'there'
        assert (await receive())['type'] == 'lifespan.startup'
        started.append(1)
        await send({'type': 'lifespan.startup.complete'})
        await receive()
    told = [scope[name] for name in ('method', 'path', 'raw_path', 'query_string', 'scheme', \
                                     'server')]
    body = b''
    while True:
        message = await receive()
        body += message['body']
        if not message['more_body']:
            break
    fields = dict(scope['headers'])
    text = repr((told, body, fields[b'x-a'], scope['state'], started)).encode()
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'X-A', b'b')]})
    await send({'type': 'http.response.body', 'body': text})
";
    let call = asked("/%C3%BC?a=b").method("PUT").header("x-a", "1");
    let ready = PYTHON.answered(&[("a.py", asgi)], call.body(b"body"));
    let told = String::from_utf8(ready.platform().response_body.to_vec()).unwrap();
    assert_eq!(
        told,
        "(['PUT', '/fn/ü', b'/fn/%C3%BC', b'a=b', 'http', ('example.org', 8080)], b'body', b'1', \
         {'db': 'there'}, [1])"
    );
}

/// RFC 9110 and PEP 3333: a field cannot pass for another one.
#[test]
fn header_fields_are_not_confused() {
    let text = b"
def app(environ, start_response):
    start_response('200 OK', [])
    told = {name: environ.get(name) for name in ('HTTP_COOKIE', 'HTTP_X_USER', 'HTTP_HOST', \
                                             'CONTENT_TYPE', 'HTTP_A')}
    return [repr(told).encode()]
";
    let call = asked("/").header("cookie", "a=1").header("cookie", "b=2");
    let call = call.header("x-user", "alice").header("x_user", "admin");
    let call = call.header("content_type", "text/x");
    let call = call.header("a", "1").header("a", "2");
    assert_eq!(
        PYTHON.answer(&[("a.py", text)], call),
        "{'HTTP_COOKIE': 'a=1; b=2', 'HTTP_X_USER': 'alice', 'HTTP_HOST': 'example.org:8080', \
         'CONTENT_TYPE': None, 'HTTP_A': '1,2'}"
    );
}

#[test]
fn modules_of_a_script_come_before_the_library_s() {
    let files: &[(&str, &[u8])] = &[
        (
            "a.py",
            b"import calendar, queue\ndef handler(request): return calendar.MINE + queue.MINE",
        ),
        ("calendar.py", b"MINE = 'c'"),
        ("queue/__init__.py", b"MINE = 'q'"),
    ];
    assert_eq!(PYTHON.answer(files, asked("/")), "cq");
}

/// A response without a body may state the length that it would have (RFC 9110, section 8.6).
#[test]
fn a_response_without_a_body_declares_its_length() {
    let text = b"def app(environ, start_response):\n  start_response('304 Not Modified', \
         [('Content-Length', '5'), ('ETag', 'x')])\n  return []";
    let ready = PYTHON.answered(&[("a.py", text)], asked("/"));
    assert_eq!(ready.platform().response_head.as_ref().unwrap().status, 304);
}

#[test]
fn the_environment_is_the_process_s() {
    let text = b"import os\nEARLY = os.environ['A']\ndef handler(request): return f\"{EARLY} \
         {os.getenv('A')} {os.getenv('B')}\"";
    let call = asked("/").environment("A", "gr\u{fc}n");
    assert_eq!(PYTHON.answer(&[("a.py", text)], call), "grün grün None");
}

#[test]
fn a_handler_that_fails_has_no_response() {
    for text in [
        "def handler(request): raise ValueError('no')",
        "def handler(request): return 1",
        "async def handler(request): raise ValueError('no')",
        "import asyncio\nasync def handler(request): await asyncio.Event().wait()",
        "import sys\ndef handler(request): sys.exit(0)",
        "def handler(): return 'x'",
        "from faasw import Response\ndef handler(request): return Response('x', 1000)",
        "from faasw import Response\ndef handler(request): return Response('x', \
         headers={'a b': 'c'})",
        "from faasw import Response\ndef handler(request): return Response('x', \
         headers={'a': 'b\\r\\nc: d'})",
        "from faasw import Response\ndef handler(request): return Response('x', \
         headers={'a': '\\u2603'})",
        "from faasw import Response\ndef handler(request): return Response(1)",
        "def app(environ, start_response): return [b'x']",
        "def app(environ, start_response): start_response('OK', []); return []",
        "async def app(scope, receive, send): pass",
        "async def app(scope, receive, send): await send({'type': 'nothing'})",
        "class E(Exception):\n  def __str__(self): raise E\ndef handler(request): raise E",
        "def handler(request):\n  e = ValueError()\n  e.__context__ = f = KeyError()\n  \
         f.__context__ = e\n  raise e",
    ] {
        let report = PYTHON.failed(&[("a.py", text.as_bytes())], asked("/"));
        assert!(report.contains("the handler failed"), "{text}: {report}");
    }
    for text in [
        "from faasw import Response\ndef pieces():\n  yield 'x'\n  raise ValueError\ndef \
         handler(request): return Response(pieces())",
        "from faasw import Response\ndef handler(request): return Response('x', \
         headers={'content-length': '3'})",
        "def app(environ, start_response):\n  start_response('200 OK', [])(b'x')\n  raise \
         ValueError",
    ] {
        PYTHON.failed(&[("a.py", text.as_bytes())], asked("/"));
    }
}
