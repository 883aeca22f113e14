//! What the operator gives a script in Python: secrets, configuration, key-value stores and files,
//! natively; bodies, forms, prefixes, threads, and the forms of handlers of other platforms.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::mailbox::{DRAW_SECRET, DRAW_STORE};
use faasw_abi::store::{Answer, LENGTH_BYTES, ListFrom, Operation, Request, length};
use faasw_runtime::platform::LogStream;
use support::scripts::{PYTHON, asked};
use support::{Call, Kind, values};

/// Returns the response of a script in one file.
#[track_caller]
fn answer(text: &str, call: Call) -> String {
    response(text, call).1
}

/// Returns the status and the text of a script's response.
#[track_caller]
fn response(text: &str, call: Call) -> (u16, String) {
    let mut ready = PYTHON
        .init(&[("a.py", text.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    if let Err(failure) = ready.handle(call.request) {
        let log = ready.platform().logged(LogStream::Err);
        panic!("{failure}\n{}", String::from_utf8_lossy(&log));
    }
    let platform = ready.platform();
    let status = platform.response_head.as_ref().unwrap().status;
    let body = String::from_utf8(platform.response_body.clone()).unwrap();
    (status, body)
}

/// Returns the text of a handler's expression, to which the store sends these answers, and what the
/// handler sent to the store.
#[track_caller]
fn stored(expression: &str, answers: &[Answer<'_>]) -> (String, Vec<u8>) {
    let script = format!(
        "import faasw
def handler(request):
    store = faasw.kv.open()
    try:
        return repr({expression})
    except Exception as error:
        return f'{{type(error).__name__}}: {{error}}'
"
    );
    let call = asked("/").store("stock");
    let mut ready = PYTHON
        .init(&[("a.py", script.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let records = answers.iter();
    let records = records.flat_map(|answer| answer.encode().unwrap());
    ready.platform_mut().store_answers = Some(records.collect());
    ready
        .handle(call.request)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let platform = ready.platform();
    let is_empty = platform.store_answers.as_ref().unwrap().is_empty();
    assert!(is_empty, "{expression}");
    let text = String::from_utf8(platform.response_body.clone()).unwrap();
    (text, platform.store_asked.clone())
}

fn records(mut asked: &[u8]) -> Vec<Request<'_>> {
    let mut requests = Vec::new();
    while let Some((announced, rest)) = asked.split_first_chunk::<LENGTH_BYTES>() {
        let (record, next) = rest.split_at(length(*announced).unwrap());
        requests.push(Request::decode(record).unwrap());
        asked = next;
    }
    requests
}

/// Checks an expression's value and the operations on the function's own store.
#[track_caller]
fn check(expression: &str, answers: &[Answer<'_>], operations: &[Operation<'_>], expected: &str) {
    let (text, sent) = stored(expression, answers);
    assert_eq!(text, expected, "{expression}");
    let requests = records(&sent);
    let own = requests.iter().all(|request| request.store == "default");
    assert!(own, "{requests:?}");
    let sent: Vec<&Operation<'_>> = requests.iter().map(|request| &request.operation).collect();
    assert_eq!(sent, operations.iter().collect::<Vec<_>>(), "{expression}");
}

fn value(text: &str) -> Answer<'_> {
    Answer::Values(vec![Some(text.as_bytes())])
}

#[test]
fn secrets_and_configuration_are_mappings() {
    let call = asked("/")
        .config("colour", "gr\u{fc}n")
        .config("api.url", "https://example.org")
        .secret_value("KEY", "s3cret")
        .secret("UNSET");
    let text = "import faasw
from faasw import config, secrets
EARLY = config['colour'], config.get('no'), sorted(config), sorted(secrets), 'KEY' in secrets
def error(name):
    try:
        return secrets[name]
    except KeyError as error:
        return error.args[0]
def handler(request):
    return repr([EARLY, dict(config), secrets['KEY'], secrets.get('UNSET'), secrets.get('no', 7),
        'no' in secrets, 'KEY' in config, repr(secrets), repr(secrets.items()), error('no'), \
                error('UNSET')])
";
    assert_eq!(
        answer(text, call),
        "[('grün', None, ['api.url', 'colour'], ['KEY', 'UNSET'], True), \
         {'colour': 'grün', 'api.url': 'https://example.org'}, 's3cret', None, 7, False, False, \
         '<secrets: KEY, UNSET>', 'ItemsView(<secrets: KEY, UNSET>)', \
         \"no secret 'no' is granted: deploy with --secret no\", \
         \"the secret 'UNSET' has no value: set it with `faasw secret set`\"]"
    );
}

/// A secret at the top level would become a part of the seed.
#[test]
fn what_only_a_request_may_use_fails_at_the_top_level_with_file_and_line() {
    let secret = "the secret 'KEY' is only available while a request is answered";
    let store = "the key-value store 'default' is only available while a request is answered";
    for (text, wanted) in [
        ("import faasw\n\nfaasw.secrets['KEY']", secret),
        ("import faasw\n\nfaasw.secrets.get('KEY')", secret),
        ("from faasw import secrets\n\ndict(secrets)", secret),
        ("import faasw\n\nfaasw.kv.open()", store),
        ("from faasw.kv import open\n\nopen('default')", store),
        (
            "import threading\n\nthreading.Timer(1, print).start()",
            "a timer is only available while a request is answered",
        ),
    ] {
        let call = asked("/").secret_value("KEY", "s3cret");
        match PYTHON.init(&[("a.py", text.as_bytes())], &call) {
            Ok(_) => panic!("it was taken: {text}"),
            Err(failure) => {
                let start = format!("a.py:3: RuntimeError: {wanted}");
                assert!(failure.report.starts_with(&start), "{}", failure.report);
            }
        }
    }
    // The node does not depend on the engine for this.
    for text in [
        "import faasw, _faasw.phase\n_faasw.phase.in_request = True\nfaasw.secrets['KEY']",
        "import faasw, _faasw.phase\n_faasw.phase.in_request = True\nfaasw.kv.open().get('k')",
        "import faasw\nfrom wit_world.imports import wasi_config_store as s\ns.get('KEY')",
    ] {
        let call = asked("/").secret_value("KEY", "s3cret");
        match PYTHON.init(&[("a.py", text.as_bytes())], &call) {
            Ok(_) => panic!("it was taken: {text}"),
            Err(failure) => {
                let report = failure.report;
                assert!(
                    report.starts_with("a.py:3: ") && !report.contains("s3cret"),
                    "{report}"
                );
            }
        }
    }
    // Nothing of a failed attempt remains, and the node knows of no draw.
    let text = "import faasw
try:
    faasw.secrets['KEY']
except RuntimeError:
    pass
def handler(request):
    return faasw.secrets['KEY']
";
    let call = asked("/").secret_value("KEY", "s3cret");
    let mut ready = PYTHON.init(&[("a.py", text.as_bytes())], &call).unwrap();
    assert_eq!(ready.draws().bits() & (DRAW_SECRET | DRAW_STORE), 0);
    ready.handle(call.request).unwrap();
    assert_eq!(ready.platform().response_body, b"s3cret");
}

#[test]
fn stores_are_read_and_changed() {
    use Operation::{Delete, Exists, Get, Set};
    let key = || Get(vec![b"k".as_slice()]);
    let none = || Answer::Values(vec![None]);
    let done = Answer::Done;
    check("store.get('k')", &[value("v")], &[key()], "b'v'");
    check("store.get('k', 1)", &[none()], &[key()], "1");
    check("store.get_text('k')", &[value("ü")], &[key()], "'ü'");
    check("store.get_json('k')", &[value("[1]")], &[key()], "[1]");
    check("store.get_json('k', {})", &[none()], &[key()], "{}");
    for (expression, bytes) in [
        ("store.set('k', 'ü')", "ü".as_bytes()),
        ("store.set('k', b'\\xff')", b"\xff"),
        ("store.set('k', memoryview(b'ab'))", b"ab"),
        (
            "store.set_json('k', {'a': 'ü'})",
            "{\"a\": \"ü\"}".as_bytes(),
        ),
    ] {
        let set = Set(vec![(b"k", bytes)]);
        check(expression, std::slice::from_ref(&done), &[set], "None");
    }
    let delete = Delete(vec![b"k"]);
    check(
        "store.delete('k')",
        std::slice::from_ref(&done),
        &[delete],
        "None",
    );
    let exists = [Answer::Exists(true)];
    check("store.exists('k')", &exists, &[Exists(b"k")], "True");
    let many = [Answer::Values(vec![Some(b"1"), None])];
    let get = Get(vec![b"a", b"b"]);
    check("store.get_many(['a', 'b'])", &many, &[get], "{'a': b'1'}");
    let set = Set(vec![(b"a", b"1"), (b"b", b"2")]);
    let two = [done];
    check(
        "store.set_many({'a': '1', 'b': b'2'})",
        &two,
        &[set],
        "None",
    );
    let delete = Delete(vec![b"a", b"b"]);
    check("store.delete_many(iter('ab'))", &two, &[delete], "None");
    let add = Operation::Increment(b"n", -2);
    let sum = [Answer::Number(-7)];
    check("store.increment('n', -2)", &sum, &[add], "-7");
}

#[test]
fn keys_are_listed_by_pages_and_by_prefix() {
    let page = |keys: &[&'static str], has_more| {
        Answer::Keys(keys.iter().map(|key| key.as_bytes()).collect(), has_more)
    };
    let pages = [page(&["a", "b"], true), page(&["c"], false)];
    let from = Operation::Keys;
    let lists = [from(ListFrom::Start), from(ListFrom::Behind(b"b"))];
    check("list(store.keys())", &pages, &lists, "['a', 'b', 'c']");
    // A list of a prefix begins there and ends behind it.
    let pages = [Answer::Exists(true), page(&["a:1", "a:2", "b"], true)];
    let lists = [Operation::Exists(b"a:"), from(ListFrom::Behind(b"a:"))];
    check(
        "list(store.keys('a:'))",
        &pages,
        &lists,
        "['a:', 'a:1', 'a:2']",
    );
}

#[test]
fn a_value_is_replaced_only_if_it_has_not_changed() {
    let done = Answer::Done;
    let swap = |seen, value| Operation::Swap {
        key: b"k",
        seen,
        value,
    };
    let read = || Operation::Get(vec![b"k".as_slice()]);
    check(
        "store.compare_and_swap('k', 'old', 'new')",
        &[value("old"), done.clone()],
        &[read(), swap(Some(b"old"), b"new")],
        "True",
    );
    check(
        "store.compare_and_swap('k', None, 'new')",
        &[value("old")],
        &[read()],
        "False",
    );
    check(
        "store.update('k', lambda value: (value or b'') + b'x')",
        &[value("1"), value("2"), value("2"), done],
        &[
            read(),
            swap(Some(b"1"), b"1x"),
            read(),
            swap(Some(b"2"), b"2x"),
        ],
        "b'2x'",
    );
}

#[test]
fn errors_of_stores_have_the_store_s_words() {
    let failed = [Answer::Failed("the store is full")];
    let (text, _) = stored("store.set('k', 'v')", &failed);
    assert_eq!(text, "StoreError: the store is full");
    let (text, _) = stored("store.increment('k')", &failed);
    assert_eq!(text, "StoreError: the store is full");
    let refused = [Answer::Denied];
    let (text, _) = stored("faasw.kv.open('other')", &refused);
    assert_eq!(
        text,
        "AccessDenied: the store 'other' is not granted: deploy with --kv other"
    );
    for expression in [
        "store.get(1)",
        "store.set('k', 1)",
        "store.get('\\ud800')",
        "faasw.kv.open(b'x')",
        "store.increment('k', 1 << 63)",
    ] {
        let (text, sent) = stored(expression, &[]);
        let is_refused = ["TypeError", "UnicodeEncodeError", "OverflowError"]
            .iter()
            .any(|name| text.starts_with(name));
        assert!(is_refused, "{expression}: {text}");
        assert_eq!(records(&sent).len(), 0, "{expression}");
    }
}

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

/// What a lifespan opens stays open for requests; a request's own generators are closed at its end.
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
fn threads_that_defer_work_run() {
    let text = "
import threading, queue, contextvars, _thread
variable = contextvars.ContextVar('v', default='outside')
def handler(request):
    told = []
    def work(n):
        told.append((n, threading.current_thread().name, variable.get()))
    variable.set('inside')
    for n in range(2):
        thread = threading.Thread(target=work, args=(n,), name=f't{n}', daemon=n == 1)
        assert not thread.is_alive()
        thread.start()
        thread.join(1)
        assert not thread.is_alive() and thread.ident
    assert threading.current_thread() is threading.main_thread()
    assert threading.enumerate() == [threading.main_thread()]
    def fails():
        raise ValueError('in the thread')
    threading.Thread(target=fails).start()
    timers = [threading.Timer(second, told.append, [second]) for second in (9, 2, 5)]
    for timer in timers:
        timer.start()
    timers[2].cancel()
    event = threading.Event()
    threading.Timer(3, event.set).start()
    assert event.wait(20) and event.wait()
    assert not threading.Event().wait(0.5)
    lock = threading.Lock()
    with lock:
        assert lock.locked() and not lock.acquire(False) and not lock.acquire(timeout=0.1)
    lines = queue.Queue(2)
    lines.put(1), lines.put(2)
    told.append(lines.get())
    timers[0].join()
    _thread.start_new_thread(told.append, ('raw',))
    threading.Timer(1, print, ['after the response']).start()
    return repr(told)
";
    let ready = PYTHON.answered(&[("a.py", text.as_bytes())], asked("/"));
    let body = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    assert_eq!(
        body,
        "[(0, 't0', 'outside'), (1, 't1', 'outside'), 2, 1, 9, 'raw']"
    );
    let log = String::from_utf8(ready.platform().logged(LogStream::Err)).unwrap();
    assert!(log.contains("ValueError: in the thread"), "{log}");
    let log = String::from_utf8(ready.platform().logged(LogStream::Out)).unwrap();
    assert_eq!(log, "after the response\n");
}

#[test]
fn threads_have_no_running_loop() {
    let text = "
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
async def inner():
    await asyncio.sleep(0.001)
    return asyncio.current_task().get_name()
def work(name):
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner() as runner:
            return runner.get_loop().run_until_complete(runner.get_loop().create_task(inner(), \
                                                                                    name=name))
def fails():
    raise ValueError('no')
async def handler(request):
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told = [await asyncio.to_thread(work, 'a')]
    with ThreadPoolExecutor() as pool:
        told.append(pool.submit(work, 'b').result())
    threading.Thread(target=lambda: told.append(work('c'))).start()
    try:
        await asyncio.to_thread(fails)
    except ValueError as error:
        told.append(str(error))
    assert asyncio.get_running_loop() is loop and asyncio.current_task() is task
    await asyncio.sleep(0.001)
    return repr(told)
";
    assert_eq!(answer(text, asked("/")), "['a', 'b', 'c', 'no']");
}

#[test]
fn a_pool_of_threads_is_initialised_once_and_shut_down() {
    let text = "
from concurrent.futures import ThreadPoolExecutor
told = []
def tell(call):
    try:
        told.append(call())
    except Exception as error:
        told.append(f'{type(error).__name__}: {error}')
def handler(request):
    with ThreadPoolExecutor(2, initializer=told.append, initargs=('begun',)) as pool:
        told.extend(pool.map(abs, (-1, -2)))
    tell(lambda: pool.submit(print))
    pool = ThreadPoolExecutor(initializer=lambda: 1 / 0)
    tell(pool.submit(print).result)
    tell(lambda: pool.submit(print))
    return '; '.join(map(str, told))
";
    let broken = "BrokenThreadPool: A thread initializer failed, the thread pool is not usable \
                  anymore";
    assert_eq!(
        answer(text, asked("/")),
        format!(
            "begun; 1; 2; RuntimeError: cannot schedule new futures after shutdown; {broken}; \
             {broken}"
        )
    );
}

#[test]
fn what_needs_a_second_thread_says_so() {
    let text = "
import asyncio, concurrent.futures, multiprocessing, os, queue, subprocess, threading
def held():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def wait():
    with condition:
        condition.wait()
condition = threading.Condition()
class Repeated(threading.Timer):
    def run(self):
        while True:
            pass
full = queue.Queue(1)
full.put(1)
cases = [
    held, wait, threading.Event().wait, queue.Queue().get, queue.SimpleQueue().get,
    lambda: full.put(2), full.join, threading.Semaphore(0).acquire, threading.Barrier(2).wait,
    concurrent.futures.Future().result, Repeated(1, print).start,
    lambda: subprocess.run(['ls']), lambda: os.popen('ls'),
    multiprocessing.Process(target=print).start,
    lambda: concurrent.futures.ProcessPoolExecutor().submit(print),
]
def handler(request):
    told = []
    for case in cases:
        try:
            case()
            told.append('no error')
        except Exception as error:
            told.append(f'{type(error).__name__}: {error}')
    return told
";
    let told = answer(text, asked("/"));
    let told: Vec<&str> = told.trim_matches(['[', ']']).split("\", \"").collect();
    assert_eq!(told.len(), 15, "{told:?}");
    for line in &told[..10] {
        assert!(
            line.contains("RuntimeError: this would wait for ever: a function has one"),
            "{told:?}"
        );
    }
    assert!(told[10].contains("a function has one"), "{told:?}");
    for line in &told[11..] {
        assert!(line.contains("process"), "{line}");
    }
}

#[test]
fn a_handler_may_answer_not_modified_with_a_length() {
    let text = "import faasw\ndef handler(request): return faasw.Response(b'', 304, {'etag': \
                '\"v7\"', 'content-length': '1234'})";
    assert_eq!(response(text, asked("/")), (304, String::new()));
}

#[test]
fn scripts_have_temporary_files_and_files_of_the_operator() {
    let text = "
import os, pathlib, shutil, tempfile
assert tempfile.gettempdir() == '/tmp'
EARLY = tempfile.NamedTemporaryFile('w', delete=False)
EARLY.write('early')
EARLY.close()
def refused(function, *args):
    try:
        function(*args)
    except OSError as error:
        return error.strerror
def handler(request):
    with tempfile.SpooledTemporaryFile(max_size=500_000) as file:
        for piece in request:
            file.write(piece)
        file.seek(0)
        size = len(file.read())
    with tempfile.TemporaryFile() as file:
        file.write(b'abc'), file.seek(1)
        assert file.read() == b'bc'
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'a', 'b.txt')
        path.parent.mkdir()
        path.write_text('one\\ntwo\\n', encoding='utf-8')
        with open(path, 'a+') as file:
            file.write('three\\n')
        shutil.copy('/app/a.py', folder)
        os.replace(path, path.with_suffix('.new'))
        listed = sorted(str(at.relative_to(folder)) for at in pathlib.Path(folder).rglob('*'))
        lines = path.with_suffix('.new').read_text().splitlines()
        assert os.stat(path.parent).st_mode and not path.exists()
    assert not os.path.exists(folder)
    given = pathlib.Path('/data/given.txt')
    before = given.read_text()
    given.write_text('changed')
    read_only = [refused(open, 'x', 'w'), refused(os.mkdir, '/app/x'), refused(os.unlink, 'a.py'),
        refused(os.rename, '/tmp', 'y')]
    return repr([size, listed, lines, open(EARLY.name).read(), before, given.read_text(),
        os.listdir('/data'), set(read_only)])
";
    let call = asked("/").method("POST").body(&vec![b'x'; 700_000]);
    let call = call.files("/data", &[(Kind::File, "given.txt", b"given")]);
    assert_eq!(
        answer(text, call),
        "[700000, ['a', 'a.py', 'a/b.new'], ['one', 'two', 'three'], 'early', \
         'given', 'changed', ['given.txt'], {'Read-only file system'}]"
    );
}

#[test]
fn a_database_may_be_a_file() {
    let text = "
import sqlite3
def handler(request):
    for turn in range(2):
        with sqlite3.connect('/tmp/books.db') as db:
            db.execute('create table if not exists books (title)')
            db.execute('insert into books values (?)', (f'Solaris {turn}',))
        db.close()
    with sqlite3.connect('/tmp/books.db') as db:
        return repr(list(db.execute('select * from books')))
";
    assert_eq!(answer(text, asked("/")), "[('Solaris 0',), ('Solaris 1',)]");
}
