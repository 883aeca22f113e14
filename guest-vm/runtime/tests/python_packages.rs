//! Unmodified frameworks from PyPI, and the repository's examples, in the Python engine, natively.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::outgoing;
use faasw_abi::store::Answer;
use faasw_abi::wire::ResponseHead;
use faasw_runtime::function::Ready;
use faasw_runtime::testing::{MemoryAnswer, MemoryPlatform};
use support::archives::unpack;
use support::scripts::{PYTHON, asked};
use support::{Call, fixture, values};

/// A script, and the packages beside it.
struct Script(Vec<(String, Vec<u8>)>);

impl Script {
    /// Returns these files of `examples/python`, the first of which has the handler.
    fn example(folder: &str, files: &[&str], packages: Vec<(String, Vec<u8>)>) -> Self {
        let read = |name: &&str| {
            let content = fixture(&format!("examples/python/{folder}{name}"));
            ((*name).to_owned(), content)
        };
        Self(files.iter().map(read).chain(packages).collect())
    }

    fn text(text: &str, packages: Vec<(String, Vec<u8>)>) -> Self {
        let first = ("app.py".to_owned(), text.as_bytes().to_vec());
        Self([first].into_iter().chain(packages).collect())
    }

    /// Returns the function after its request, to which the store sends these answers.
    #[track_caller]
    fn run(&self, call: Call, answers: &[Answer<'_>]) -> Ready<MemoryPlatform> {
        let files: Vec<(&str, &[u8])> = self
            .0
            .iter()
            .map(|(path, content)| (path.as_str(), content.as_slice()))
            .collect();
        let mut ready = PYTHON
            .init(&files, &call)
            .unwrap_or_else(|failure| panic!("{}", failure.report));
        let records = answers.iter();
        let records = records.flat_map(|answer| answer.encode().unwrap());
        ready.platform_mut().store_answers = Some(records.collect());
        let handled = ready.handle(call.request);
        let log: Vec<u8> = ready
            .platform()
            .log
            .iter()
            .flat_map(|(_, text)| text.clone())
            .collect();
        let log = String::from_utf8_lossy(&log).into_owned();
        handled.unwrap_or_else(|failure| panic!("{}\n{log}", failure.report));
        ready
    }
}

fn body(ready: &Ready<MemoryPlatform>) -> String {
    String::from_utf8(ready.platform().response_body.clone()).unwrap()
}

fn status(ready: &Ready<MemoryPlatform>) -> u16 {
    ready.platform().response_head.as_ref().unwrap().status
}

fn field(ready: &Ready<MemoryPlatform>, name: &str) -> Vec<String> {
    let head = ready.platform().response_head.as_ref().unwrap();
    let found = values(&head.headers, name);
    found
        .iter()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .collect()
}

/// A form with these fields; a file has a name.
fn form(fields: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in fields {
        let file = file
            .map(|file| format!("; filename=\"{file}\""))
            .unwrap_or_default();
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b--\r\n");
    body
}

fn post(path: &str, body: &[u8]) -> Call {
    let kind = "multipart/form-data; boundary=b";
    let length = body.len().to_string();
    let call = asked(path).method("POST").header("content-type", kind);
    call.header("content-length", &length).body(body)
}

fn value(text: &str) -> Answer<'_> {
    Answer::Values(vec![Some(text.as_bytes())])
}

#[test]
fn a_counter_counts_in_the_store() {
    let script = Script::example("", &["counter.py"], Vec::new());
    let ready = script.run(asked("/a"), &[Answer::Number(3)]);
    assert_eq!(body(&ready), "visit 3\n");
    let keys = Answer::Keys(vec![b"visits:/a", b"visits:/b"], false);
    let counts = Answer::Values(vec![Some(b"3"), Some(b"1")]);
    let answers = [Answer::Exists(false), keys, counts];
    let ready = script.run(asked("/counts"), &answers);
    assert_eq!(body(&ready), r#"{"/a": 3, "/b": 1}"#);
    let ready = script.run(asked("/a").method("DELETE"), &[Answer::Done]);
    assert_eq!(status(&ready), 204);
}

/// The client never sees the key, which only a request has.
#[test]
fn an_api_client_sends_its_secret() {
    let files = [("api_client.py", fixture("examples/python/api_client.py"))];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, &**text)).collect();
    for (status, text, expected) in [
        (200, r#"{"id": 7}"#, r#"{"id": 7}"#),
        (404, "", r#"{"error": "no such item"}"#),
        (500, "", r#"{"error": "the API does not work"}"#),
    ] {
        let call = asked("/7").config("API_URL", "https://api.test");
        let call = call.secret_value("API_KEY", "s3cret");
        let mut ready = PYTHON
            .init(&files, &call)
            .unwrap_or_else(|failure| panic!("{failure}"));
        let calls = &mut ready.platform_mut().calls;
        calls.open = 1;
        let length = text.len().to_string().into_bytes();
        let head = ResponseHead {
            status,
            headers: vec![(b"content-length".to_vec(), length)],
        };
        calls.answers.push_back(MemoryAnswer {
            head: outgoing::Answer::Response(head).encode(),
            pieces: [text.as_bytes().to_vec()].into(),
            tail: Some(Vec::new()),
            ..MemoryAnswer::default()
        });
        ready.handle(call.request).unwrap();
        assert_eq!(body(&ready), expected);
        let sent = &ready.platform().calls.asked[0].head;
        assert_eq!(sent.path_and_query, b"/items/7");
        assert_eq!(values(&sent.headers, "authorization"), [b"Bearer s3cret"]);
    }
}

#[test]
fn a_form_takes_an_upload() {
    let script = Script::example("", &["upload.py"], Vec::new());
    assert!(body(&script.run(asked("/"), &[])).contains("<form"));
    let sent = form(&[("note", None, b"<n>"), ("file", Some("a&b.txt"), b"hello")]);
    let told = body(&script.run(post("/", &sent), &[]));
    let wanted = "<p>a&amp;b.txt: 5 bytes, SHA-256 \
                  2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824. &lt;n&gt;</p>";
    assert!(told.contains(wanted), "{told}");
    let large = form(&[("file", Some("large"), &vec![b'x'; 8 << 20])]);
    let told = body(&script.run(post("/", &large), &[]));
    assert!(told.contains("8388608 bytes"), "{told}");
    let malformed = script.run(post("/", b"--b\r\n"), &[]);
    assert_eq!(status(&malformed), 400);
}

#[test]
fn a_lambda_function_runs_unchanged() {
    let script = Script::example("", &["aws_lambda.py"], Vec::new());
    let ready = script.run(asked("/a?name=%C3%BC"), &[]);
    assert_eq!(body(&ready), r#"{"hello": "\u00fc", "path": "/a"}"#);
    assert_eq!(field(&ready, "x-request-id").len(), 1);
    assert_eq!(status(&script.run(asked("/").method("PUT"), &[])), 405);
}

#[test]
fn flask_keeps_its_links_inside_the_function() {
    let files = ["app.py", "templates/index.html"];
    let script = Script::example(
        "flask_notes/",
        &files,
        unpack("tests/fixtures/scripts/packages.tar.zst"),
    );
    let notes = [
        Answer::Exists(false),
        Answer::Keys(vec![b"note:1"], false),
        value("<b>"),
    ];
    let shop = |call: Call| call.prefix("/shop");
    let told = body(&script.run(shop(asked("/")), &notes));
    assert!(told.contains("action=\"/shop/notes\""), "{told}");
    assert!(told.contains("<li>&lt;b&gt;</li>"), "{told}");
    let sent = form(&[("text", None, b"new")]);
    let ready = script.run(shop(post("/notes", &sent)), &[Answer::Done]);
    assert_eq!(status(&ready), 302);
    assert_eq!(field(&ready, "location"), ["/shop/"]);
}

/// Werkzeug keeps a file of more than 500 KB in a temporary file.
#[test]
fn flask_takes_large_uploads() {
    let text = "
from flask import Flask, request
app = Flask(__name__)
@app.post('/')
def upload():
    file = request.files['f']
    return f'{file.filename} {len(file.read())} {len(request.form[\"a\"])}'
@app.post('/raw')
def raw():
    return str(len(request.data))
";
    let script = Script::text(text, unpack("tests/fixtures/scripts/packages.tar.zst"));
    let sent = form(&[("f", Some("n"), &vec![b'x'; 3 << 20]), ("a", None, b"ab")]);
    assert_eq!(body(&script.run(post("/", &sent), &[])), "n 3145728 2");
    let raw = asked("/raw").method("POST").body(&vec![b'x'; 700_000]);
    assert_eq!(body(&script.run(raw, &[])), "700000");
}

#[test]
fn starlette_keeps_its_links_inside_the_function() {
    let text = "
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route
def home(request):
    return PlainTextResponse(f'{request.url} {request.url_for(\"item\", id=1)} \
                {request.base_url} {request.url_for(\"inner\")}')
def item(request):
    return PlainTextResponse(f'{request.path_params[\"id\"]}')
def away(request):
    return RedirectResponse(request.url_for('item', id=2).path)
async def upload(request):
    async with request.form() as form:
        return PlainTextResponse(f'{form[\"f\"].filename} {len(await form[\"f\"].read())}')
app = Starlette(routes=[Route('/', home), Route('/items/{id}/', item, name='item'),
    Route('/away', away), Route('/shop', lambda request: PlainTextResponse('own')),
    Mount('/in', routes=[Route('/x', home, name='inner')])])
";
    let script = Script::text(text, unpack("tests/fixtures/scripts/packages.tar.zst"));
    let shop = |path| asked(path).prefix("/shop");
    assert_eq!(
        body(&script.run(shop("/"), &[])),
        "http://example.org:8080/shop/ http://example.org:8080/shop/items/1/ \
         http://example.org:8080/shop/ http://example.org:8080/shop/in/x"
    );
    assert_eq!(body(&script.run(shop("/items/7/"), &[])), "7");
    assert_eq!(body(&script.run(shop("/shop"), &[])), "own");
    let ready = script.run(shop("/away"), &[]);
    assert_eq!(field(&ready, "location"), ["/shop/items/2/"]);
    // Starlette redirects to the path with a slash.
    let ready = script.run(shop("/items/7"), &[]);
    assert_eq!(
        field(&ready, "location"),
        ["http://example.org:8080/shop/items/7/"]
    );
    let none = "http://example.org:8080/ http://example.org:8080/items/1/ http://example.org:8080/";
    assert!(body(&script.run(asked("/").prefix(""), &[])).starts_with(none));
}

/// Returns the value of a hidden field of a page.
fn token(page: &str) -> String {
    let (_, rest) = page.split_once("csrfmiddlewaretoken\" value=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[test]
fn django_has_forms_uploads_redirects_and_sessions() {
    let files = ["app.py", "templates/index.html"];
    let script = Script::example(
        "django_guestbook/",
        &files,
        unpack("tests/fixtures/scripts/django.tar.zst"),
    );
    let guest = |call: Call| {
        call.prefix("/guest")
            .environment("SECRET_KEY", &"s".repeat(50))
    };
    let none = || [Answer::Exists(false), Answer::Keys(Vec::new(), false)];
    let ready = script.run(guest(asked("/")), &none());
    let page = body(&ready);
    assert!(page.contains("action=\"/guest/\""), "{page}");
    let cookie = field(&ready, "set-cookie").remove(0);
    let cookie = cookie.split(';').next().unwrap().trim().to_owned();
    // Django keeps a file of more than 2.5 MB in a temporary file.
    let sent = form(&[
        ("csrfmiddlewaretoken", None, token(&page).as_bytes()),
        ("name", None, b"Ann"),
        ("picture", Some("p.png"), &vec![b'p'; 3_000_000]),
    ]);
    let call = guest(post("/", &sent)).header("cookie", &cookie);
    let ready = script.run(call, &[Answer::Number(1), Answer::Done]);
    assert_eq!(status(&ready), 302);
    assert_eq!(field(&ready, "location"), ["/guest/"]);
    let stored = String::from_utf8_lossy(&ready.platform().store_asked).into_owned();
    assert!(
        stored.contains(r#"{"name": "Ann", "size": 3000000}"#),
        "{stored}"
    );
    let session = field(&ready, "set-cookie").remove(0);
    let session = session.split(';').next().unwrap().trim().to_owned();
    let entry = [
        Answer::Exists(false),
        Answer::Keys(vec![b"entry:0000000001"], false),
        value(r#"{"name": "Ann", "size": 3}"#),
    ];
    let page = body(&script.run(guest(asked("/")).header("cookie", &session), &entry));
    assert!(page.contains("Your entries: 1"), "{page}");
    assert!(page.contains("<li>Ann (3 bytes)</li>"), "{page}");
    // A form without the token is refused.
    let sent = form(&[("name", None, b"Bob")]);
    assert_eq!(status(&script.run(guest(post("/", &sent)), &[])), 403);
}
