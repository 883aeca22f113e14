//! The forms of handlers and applications, with their bodies and prefixes.

use crate::support::scripts::{PYTHON, asked};
use crate::support::values;
use crate::{answer, response};
use faasw_runtime::platform::LogStream;

/// The node sends the prefix, and no client can.
#[test]
fn applications_know_the_prefix_of_their_urls() {
    let wsgi = "
from wsgiref.util import application_uri, request_uri
def app(environ, start_response):
    start_response('200 OK', [])
    return [repr([environ['SCRIPT_NAME'], environ['PATH_INFO'], application_uri(environ),
        request_uri(environ), [name for name in environ if 'PREFIX' in name]]).encode()]
";
    let shop = |path| asked(path).prefix("/shop");
    assert_eq!(
        answer(wsgi, shop("/a?b=c")),
        "['/shop', '/a', 'http://example.org:8080/shop', 'http://example.org:8080/shop/a?b=c', []]"
    );
    assert_eq!(
        answer(wsgi, asked("/a").prefix("")),
        "['', '/a', 'http://example.org:8080/', 'http://example.org:8080/a', []]"
    );
    let asgi = "
async def app(scope, receive, send):
    if scope['type'] == 'http':
        text = [scope['root_path'], scope['path'], scope['raw_path'],
            [name for name, _ in scope['headers'] if b'prefix' in name]]
        await send({'type': 'http.response.start', 'status': 200})
        await send({'type': 'http.response.body', 'body': repr(text).encode()})
";
    assert_eq!(
        answer(asgi, shop("/%C3%BC")),
        "['/shop', '/shop/ü', b'/shop/%C3%BC', []]"
    );
    assert_eq!(answer(asgi, asked("/").prefix("")), "['', '/', b'/', []]");
    let handler = "def handler(request):\n    return repr((request.base_path, request.path, \
                   list(request.headers)))";
    assert_eq!(answer(handler, shop("/a")), "('/shop', '/a', ['host'])");
    assert_eq!(answer(handler, shop("")), "('/shop', '/', ['host'])");
}

/// PEP 3333: an application reads as many bytes as CONTENT_LENGTH says, and none without.
#[test]
fn a_body_without_a_length_reaches_wsgi_whole() {
    let text = "
def app(environ, start_response):
    length = int(environ.get('CONTENT_LENGTH') or 0)
    body = environ['wsgi.input'].read(length)
    start_response('200 OK', [])
    return [f\"{environ.get('CONTENT_LENGTH')} {len(body)} {body[:3]}\".encode()]
";
    let post = || asked("/").method("POST");
    assert_eq!(answer(text, post().body(b"hello")), "5 5 b'hel'");
    let call = post().body(b"he").arriving(&[b"ll", b"o"]);
    assert_eq!(answer(text, call), "5 5 b'hel'");
    assert_eq!(answer(text, post()), "0 0 b''");
    assert_eq!(answer(text, asked("/")), "None 0 b''");
    let most = vec![b'x'; 16 << 20];
    assert_eq!(answer(text, post().body(&most)), "16777216 16777216 b'xxx'");
    let more = vec![b'x'; (16 << 20) + 1];
    let (status, told) = response(text, post().body(&more));
    assert_eq!(status, 413, "{told}");
    assert!(told.contains("no content-length"), "{told}");
    // With a length, it is read as the application reads it.
    let call = post().header("content-length", "16777217").body(&more);
    assert_eq!(answer(text, call), "16777217 16777217 b'xxx'");
}

#[test]
fn forms_have_files() {
    let text = "
from faasw import File
def handler(request):
    try:
        form = request.form()
    except ValueError as error:
        return f'ValueError: {error}'
    file = form['f']
    assert isinstance(file, File) and file.bytes == file.file.read()
    return repr([form['a'], file, file.filename, file.content_type, file.text, len(form), \
                form.get_all('a')])
";
    let body = "--xX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nü\r\n--xX\r\n\
                Content-Disposition: form-data; name=\"f\"; filename=\"a %22b\u{fc}.txt\"\r\n\
                Content-Type: text/x\r\n\r\n1\r\n--xY\r\n2\r\n--xX\r\n\
                content-disposition: form-data; name=a\r\n\r\n\r\n--xX--\r\n";
    let post = |kind: &str, body: &str| {
        let call = asked("/").method("POST").header("content-type", kind);
        answer(text, call.body(body.as_bytes()))
    };
    let kind = "multipart/form-data; boundary=xX";
    assert_eq!(
        post(kind, body),
        "['ü', <File 'a \"bü.txt', 10 bytes>, 'a \"bü.txt', 'text/x', '1\\r\\n--xY\\r\\n2', 2, \
         ['ü', '']]"
    );
    for (kind, body, wanted) in [
        (
            "multipart/mixed; boundary=xX",
            body,
            "cannot be multipart/mixed",
        ),
        ("multipart/form-data", body, "no valid boundary"),
        (kind, "", "does not begin"),
        (kind, "--xX\r\n", "before its last boundary"),
        (kind, &body[..body.len() - 10], "before its last boundary"),
        (kind, "--xX\r\nA: b\r\n\r\n\r\n--xX--", "has no name"),
        (
            kind,
            "--xX\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--xX--",
            "malformed",
        ),
    ] {
        let told = post(kind, body);
        assert!(
            told.starts_with("ValueError: ") && told.contains(wanted),
            "{told}"
        );
    }
    let many = "--xX\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n".repeat(1001) + "--xX--";
    assert!(post(kind, &many).contains("at most 1000 parts"));
    let like = format!(
        "--xX\r\nContent-Disposition: form-data; name=a\r\n\r\n{}",
        "\r\n--xXy".repeat(1001)
    );
    assert!(post(kind, &like).contains("at most 1000 parts"));
    for names in [
        "filename=b; filename*=UTF-8''%C3%BC",
        "filename*=UTF-8''%C3%BC; filename=b",
    ] {
        let part = format!("--xX\r\nContent-Disposition: form-data; name=f; {names}\r\n\r\n");
        let other = "\r\n--xX\r\nContent-Disposition: form-data; name=a; name*=b\r\n\r\n\r\n--xX--";
        let told = post(kind, &(part + other));
        assert!(told.starts_with("['', <File 'ü', 0 bytes>"), "{told}");
    }
    let told = post("application/x-www-form-urlencoded", &"a=1&".repeat(1001));
    assert!(told.starts_with("ValueError: "), "{told}");
}

#[test]
fn an_event_and_a_context_are_those_of_lambda() {
    let text = "
def lambda_handler(event, context):
    http = event['requestContext']['http']
    assert context.get_remaining_time_in_millis() > 0 and context.aws_request_id
    return {'statusCode': 201, 'headers': {'X-A': 'b'}, 'cookies': ['a=1', 'b=2'], 'body': repr([
        event['version'], event['rawPath'], event['rawQueryString'], http['method'], \
                event.get('cookies'),
        event.get('queryStringParameters'), event.get('body'), event['isBase64Encoded'],
        event['headers'].get('x-b'), context.function_name, context.memory_limit_in_mb])}
";
    let call = asked("/p%20q?x=1&x=2&y=").method("POST");
    let call = call.header("cookie", "a=1").header("cookie", "c=d");
    let call = call.header("x-b", "1").header("x-b", "2");
    let call = call.environment("FAASW_BASE_PATH", "/shop");
    let json = call.header("content-type", "application/json").body(b"{}");
    let ready = PYTHON.answered(&[("a.py", text.as_bytes())], json);
    let head = ready.platform().response_head.clone().unwrap();
    assert_eq!(head.status, 201);
    assert_eq!(values(&head.headers, "set-cookie"), [b"a=1", b"b=2"]);
    assert_eq!(values(&head.headers, "x-a"), [b"b"]);
    let body = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    assert_eq!(
        body,
        "['2.0', '/p%20q', 'x=1&x=2&y=', 'POST', ['a=1', 'c=d'], {'x': '1,2', 'y': ''}, '{}', \
         False, '1,2', 'shop', '128']"
    );
    let echo = "
import base64
def handler(event, context):
    body = event.get('body', '')
    return base64.b64decode(body).hex() if event['isBase64Encoded'] else body
";
    let post = |kind: &str| asked("/").method("POST").header("content-type", kind);
    let binary = post("image/png").body(b"\xff\x00");
    assert_eq!(answer(echo, binary), "ff00");
    assert_eq!(answer(echo, post("text/x").body(b"a")), "a");
    for (result, expected) in [
        ("{'a': 1}", "{\"a\": 1}"),
        ("[1]", "[1]"),
        ("'x'", "x"),
        ("None", "null"),
        ("{'statusCode': 200}", ""),
        (
            "{'statusCode': 200, 'body': '/wA=', 'isBase64Encoded': True, 'headers': \
             {'content-type': 'a/b'}}",
            "\u{fffd}\0",
        ),
    ] {
        let text = format!("def handler(event, context):\n    return {result}");
        let ready = PYTHON.answered(&[("a.py", text.as_bytes())], asked("/"));
        let body = String::from_utf8_lossy(&ready.platform().response_body);
        assert_eq!(body, expected, "{result}");
    }
    for result in [
        "{'statusCode': 200, 'body': {}}",
        "{'statusCode': 'x'}",
        "object()",
    ] {
        let text = format!("def handler(event, context):\n    return {result}");
        let report = PYTHON.failed(&[("a.py", text.as_bytes())], asked("/"));
        assert!(!report.is_empty(), "{result}");
    }
    let asynchronous = "async def lambda_handler(event, context): return {'statusCode': 200, \
                        'body': 'x'}";
    assert_eq!(answer(asynchronous, asked("/")), "x");
}

#[test]
fn an_application_is_found_by_its_name() {
    let wsgi = "def web(environ, start_response):\n  start_response('200 OK', [])\n  return \
                [b'x']\n";
    let asgi = "async def web(scope, receive, send):\n  if scope['type'] == 'http':\n    await \
                send({'type': 'http.response.start', 'status': 200})\n    await \
                send({'type': 'http.response.body', 'body': b'x'})\n";
    let factory = "def create_app():\n  return web\n";
    for (text, entry) in [
        (wsgi.to_owned(), "web"),
        (asgi.to_owned(), "web\n"),
        (wsgi.to_owned() + factory, "create_app"),
        (asgi.to_owned() + factory, "create_app"),
        (
            "class a:\n  b = lambda event, context: 'x'".to_owned(),
            "a.b",
        ),
        ("def f(request): return 'x'".to_owned(), "f"),
        ("async def f(request): return 'x'".to_owned(), "f"),
        ("async def f(e, c): return 'x'".to_owned(), "f"),
        ("def f(event, _): return 'x'".to_owned(), "f"),
        (
            "def lambda_handler(e, c): return 'x'".to_owned(),
            "lambda_handler",
        ),
        (wsgi.replace("web", "wsgi_handler"), "wsgi_handler"),
        (
            wsgi.replace("environ", "e").replace("start_response", "s"),
            "web",
        ),
        (
            "def handler(request): return 'no'\nclass A:\n  def __call__(self, environ, s):\n    \
             s('200 OK', [])\n    return [b'x']\nweb = A()"
                .to_owned(),
            "web",
        ),
    ] {
        let files: [(&str, &[u8]); 2] = [
            ("a.py", text.as_bytes()),
            (".faasw/entry", entry.as_bytes()),
        ];
        assert_eq!(PYTHON.answer(&files, asked("/")), "x", "{text}");
    }
    for (text, entry, wanted) in [
        ("x = 1", "app", "a.py: there is no `app` in a.py"),
        ("app = 1", "app", "a.py: `app` is int, and cannot be called"),
        ("def f(): pass", "f", "a.py: `f()` gives NoneType"),
        (
            "def f():\n  raise ValueError('no')",
            "f",
            "a.py:2: ValueError: no",
        ),
    ] {
        let files: [(&str, &[u8]); 2] = [
            ("a.py", text.as_bytes()),
            (".faasw/entry", entry.as_bytes()),
        ];
        let report = PYTHON.refused(&files);
        assert!(report.starts_with(wanted), "{report}");
    }
}

/// Objects that a lifespan opens stay open for requests; a request's own generators are closed at
/// its end.
#[test]
fn a_lifespan_lasts_for_all_requests() {
    let text = "
from contextlib import asynccontextmanager
closed = []
class Store:
    is_open = True
@asynccontextmanager
async def lifespan():
    store = Store()
    try:
        yield store
    finally:
        store.is_open = False
        closed.append('lifespan')
async def pieces():
    try:
        yield b'x'
    finally:
        print('closed')
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        await receive()
        async with lifespan() as scope['state']['store']:
            await send({'type': 'lifespan.startup.complete'})
            await receive()
        return
    app.left_open = pieces()
    await anext(app.left_open)
    text = repr((scope['state']['store'].is_open, closed))
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': text.encode()})
";
    let ready = PYTHON.answered(&[("a.py", text.as_bytes())], asked("/"));
    let body = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    assert_eq!(body, "(True, [])");
    let log = String::from_utf8(ready.platform().logged(LogStream::Out)).unwrap();
    assert_eq!(log, "closed\n");
}

#[test]
fn a_handler_may_answer_not_modified_with_a_length() {
    let text = "import faasw\ndef handler(request): return faasw.Response(b'', 304, {'etag': \
                '\"v7\"', 'content-length': '1234'})";
    assert_eq!(response(text, asked("/")), (304, String::new()));
}
