//! Scripts in Python, by the engine that faasw carries, in real microVMs. What such scripts find
//! is tested beside the engine: `guest-vm/runtime/tests/python.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;
mod e2e;

use std::{
    collections::{BTreeMap, HashSet},
    io::Read as _,
    sync::LazyLock,
};

use common::time_limit;
use e2e::{BENCH, bundle};
use faasw::{DeployError, Deployed, FreezePolicy, FunctionOptions, SeedError};

const HELLO: &str = "def handler(request): return 'hello'";

fn one(text: &str) -> Vec<u8> {
    bundle(&[("main.py", text)])
}

/// Deploys a script to the shared node.
fn deploy(name: &str, text: &str) -> Deployed {
    BENCH.deploy(name, &one(text), FunctionOptions::default())
}

fn refused(text: &str) -> DeployError {
    let deploying = BENCH
        .node
        .deploy("refused", one(text), FunctionOptions::default());
    let deployed = BENCH.block_on(deploying);
    deployed.map(|done| panic!("{done:?}")).unwrap_err()
}

/// The packages of PyPI that are kept for tests, by the paths of their files.
static PACKAGES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let packed = e2e::file("fixtures/scripts/packages.tar.zst");
    let mut unpacked = Vec::new();
    let mut reader = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    reader.read_to_end(&mut unpacked).unwrap();
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(unpacked.as_slice());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.insert(path.trim_start_matches("./").to_owned(), text);
        }
    }
    files
});

/// A script with packages beside it.
fn with_packages(files: &[(&str, &str)], packages: &[&str]) -> Vec<u8> {
    let mut all = files.to_vec();
    for (path, text) in PACKAGES.iter() {
        let is_of = |package: &&str| {
            path.strip_prefix(package)
                .is_some_and(|rest| rest.starts_with(['/', '.', '-']))
        };
        if packages.iter().any(is_of) {
            all.push((path, text));
        }
    }
    bundle(&all)
}

const FLASK: &[&str] = &[
    "flask",
    "werkzeug",
    "jinja2",
    "markupsafe",
    "itsdangerous",
    "click",
    "blinker",
];
const STARLETTE: &[&str] = &["starlette", "anyio", "idna", "typing_extensions"];

fn a_script_needs_nothing_else() {
    let deployed = deploy("hello", HELLO);
    assert_eq!(deployed.function.engine.unwrap().name.as_str(), "python");
    for _ in 0..10 {
        assert_eq!(BENCH.text("/hello/"), "hello");
    }
    let mut engines = BENCH.node.engines().into_iter();
    let info = engines.find(|engine| engine.name.as_str() == "python");
    let info = info.unwrap();
    assert!(info.is_carried && info.is_warm, "{info:?}");
}

fn flask_runs_as_it_is() {
    let app = r#"
from flask import Flask, Response, abort, redirect, render_template, request, session
app = Flask(__name__)
app.secret_key = "k"
@app.get("/")
def index():
    return render_template("page.html", name=request.args.get("name", "world"))
@app.post("/echo")
def echo():
    return {"got": request.get_json(), "size": len(request.data)}
@app.post("/form")
def form():
    file = request.files["f"]
    return {"a": request.form["a"], "name": file.filename, "text": file.read().decode()}
@app.get("/fail")
def fail():
    raise ValueError("nö")
@app.get("/stream")
def stream():
    return Response((f"{i} " for i in range(5)), mimetype="text/plain")
@app.get("/users/<name>")
def user(name):
    session["user"] = name
    return name
@app.get("/away")
def away():
    return redirect("/users/x")
@app.get("/static-text")
def text():
    return app.send_static_file("a.txt")
"#;
    let upload = with_packages(
        &[
            ("app.py", app),
            (
                "templates/page.html",
                "{% extends 'base.html' %}{% block b %}Hello {{ name }}!{% endblock %}",
            ),
            (
                "templates/base.html",
                "<h1>{% block b %}{% endblock %}</h1>",
            ),
            ("static/a.txt", "kept in a file"),
        ],
        FLASK,
    );
    BENCH.deploy("flask", &upload, FunctionOptions::default());
    assert_eq!(
        BENCH.text("/flask/?name=%3C%C3%BC"),
        "<h1>Hello &lt;ü!</h1>"
    );
    let kind = "content-type: application/json\r\n";
    let echo = BENCH.request("POST", "/flask/echo", kind, r#"{"a":"ü"}"#);
    assert_eq!(echo.body.trim(), r#"{"got":{"a":"\u00fc"},"size":10}"#);
    let form = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nü\r\n--b\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"n.txt\"\r\n\r\nx\r\n--b--\r\n";
    let kind = "content-type: multipart/form-data; boundary=b\r\n";
    let told = BENCH.request("POST", "/flask/form", kind, form).body;
    assert_eq!(told.trim(), r#"{"a":"\u00fc","name":"n.txt","text":"x"}"#);
    assert_eq!(BENCH.text("/flask/stream"), "0 1 2 3 4 ");
    let user = BENCH.get("/flask/users/%C3%A4");
    assert_eq!(user.body, "ä");
    assert!(user.headers.iter().any(|(name, _)| name == "set-cookie"));
    assert_eq!(BENCH.get("/flask/away").status, 302);
    assert_eq!(BENCH.get("/flask/none").status, 404);
    assert_eq!(BENCH.text("/flask/static-text"), "kept in a file");
    assert_eq!(BENCH.get("/flask/fail").status, 500);
    BENCH.log_once("flask", |lines| {
        lines.iter().any(|line| line.text == "ValueError: nö")
    });
}

fn starlette_runs_as_it_is() {
    let app = r#"
import asyncio, contextlib
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
@contextlib.asynccontextmanager
async def lifespan(app):
    print("started")
    yield {"made": "at deployment"}
async def home(request):
    await asyncio.sleep(0.001)
    return PlainTextResponse(f"{request.url.path} {request.query_params['a']} {request.state.made}")
async def echo(request):
    return JSONResponse({"size": sum([len(piece) async for piece in request.stream()])})
def blocking(request):
    return PlainTextResponse("not async")
async def stream(request):
    async def pieces():
        for i in range(3):
            yield f"{i} "
            await asyncio.sleep(0.001)
    return StreamingResponse(pieces())
async def later(request):
    async def work():
        await asyncio.sleep(0.005)
        print("after the response")
    return PlainTextResponse("now", background=BackgroundTask(work))
app = Starlette(lifespan=lifespan, routes=[
    Route("/", home), Route("/echo", echo, methods=["POST"]), Route("/blocking", blocking),
    Route("/stream", stream), Route("/later", later),
])
"#;
    let upload = with_packages(&[("main.py", app)], STARLETTE);
    BENCH.deploy("starlette", &upload, FunctionOptions::default());
    assert_eq!(BENCH.text("/starlette/?a=%C3%BC"), "/ ü at deployment");
    let body = "x".repeat(300_000);
    let echo = BENCH.request("POST", "/starlette/echo", "", &body);
    assert_eq!(echo.body, r#"{"size":300000}"#);
    let blocking = BENCH.get("/starlette/blocking");
    assert_eq!(blocking.body, "not async", "{:?}", BENCH.log("starlette"));
    assert_eq!(BENCH.text("/starlette/stream"), "0 1 2 ");
    assert_eq!(BENCH.text("/starlette/later"), "now");
    BENCH.log_once("starlette", |lines| {
        lines.iter().any(|line| line.text == "after the response")
    });
    let log = BENCH.log("starlette");
    let started = log.iter().filter(|line| *line == "started").count();
    assert_eq!(started, 1, "{log:?}");
}

fn bottle_and_jinja_run_as_they_are() {
    let app = r#"
import bottle
app = bottle.Bottle()
@app.route("/hello/<name>")
def hello(name):
    return bottle.template("<b>Hello {{name}}</b>", name=name)
@app.post("/echo")
def echo():
    return {"got": bottle.request.json, "a": bottle.request.query.a}
"#;
    let upload = with_packages(&[("app.py", app)], &["bottle"]);
    BENCH.deploy("bottle", &upload, FunctionOptions::default());
    assert_eq!(BENCH.text("/bottle/hello/%3C"), "<b>Hello &lt;</b>");
    let kind = "content-type: application/json\r\n";
    let echo = BENCH.request("POST", "/bottle/echo?a=1", kind, "[1]");
    assert_eq!(echo.body, r#"{"got": [1], "a": "1"}"#);
    assert_eq!(BENCH.get("/bottle/none").status, 404);
    let app = r#"
from jinja2 import Environment, FileSystemLoader, PackageLoader, select_autoescape
pages = Environment(loader=FileSystemLoader("pages"), autoescape=select_autoescape())
PAGE = pages.get_template("list.html")
def handler(request):
    return PAGE.render(names=request.query.get_all("name"))
"#;
    let page = "{% for name in names %}<li>{{ name|upper }}</li>{% else %}none{% endfor %}";
    let files = [("main.py", app), ("pages/list.html", page)];
    let upload = with_packages(&files, &["jinja2", "markupsafe"]);
    BENCH.deploy("jinja", &upload, FunctionOptions::default());
    assert_eq!(
        BENCH.text("/jinja/?name=%C3%A4&name=%3Cb"),
        "<li>Ä</li><li>&lt;B</li>"
    );
    assert_eq!(BENCH.text("/jinja/"), "none");
}

/// What is left of a body unread is given back; an instance that trapped would be reported.
fn a_body_may_be_left_unread() {
    deploy(
        "unread",
        "def app(environ, start_response):\n  read = environ['wsgi.input'].read(3)\n  start_response('200 OK', [])\n  return [read]",
    );
    let body = "abc".repeat(100_000);
    for body in ["abc", body.as_str()] {
        for _ in 0..3 {
            assert_eq!(BENCH.request("POST", "/unread/", "", body).body, "abc");
        }
    }
    assert_eq!(BENCH.log("unread"), Vec::<String>::new());
}

/// A name for the files of each version: what a client has kept of one before is not the same.
fn files_have_changed_with_a_new_version() {
    let app = "from flask import Flask\napp = Flask(__name__)";
    let mut tags = HashSet::new();
    for text in ["v1", "v2"] {
        let upload = with_packages(&[("app.py", app), ("static/a.txt", text)], FLASK);
        BENCH.deploy("static", &upload, FunctionOptions::default());
        let answer = BENCH.get("/static/static/a.txt");
        assert_eq!(answer.body, text);
        let tag = answer.headers.iter().find(|(name, _)| name == "etag");
        assert!(tags.insert(tag.unwrap().1.clone()), "{tags:?}");
        let known = format!("if-none-match: {}\r\n", tag.unwrap().1);
        let again = BENCH.request("GET", "/static/static/a.txt", &known, "");
        assert_eq!(again.status, 304, "{again:?}");
    }
}

fn bodies_stream_both_ways() {
    deploy(
        "stream",
        "
import time
from faasw import Response
def upper(request):
    for piece in request:
        yield piece.upper()
def count():
    for i in range(1, 6):
        time.sleep(0.001)
        yield f'{i} '
def handler(request):
    if request.path == '/through':
        return Response(request)
    if request.path == '/upper':
        return Response(upper(request))
    if request.path == '/whole':
        return Response(request.body, 207, [('set-cookie', 'a=1'), ('Set-Cookie', 'b=2')])
    if request.path == '/form':
        return request.form().pairs()
    return Response(count())
",
    );
    let body = "aé🦀\0".repeat(100_000);
    for way in ["through", "whole"] {
        let answer = BENCH.request("POST", &format!("/stream/{way}"), "", &body);
        assert!(answer.body == body, "{way}");
        if way == "whole" {
            let cookies = answer
                .headers
                .iter()
                .filter(|(name, _)| name == "set-cookie");
            let cookies: Vec<_> = cookies.map(|(_, value)| value.as_str()).collect();
            assert_eq!(
                (answer.status, cookies),
                (207, vec!["a=1; Path=/stream/", "b=2; Path=/stream/"])
            );
        }
    }
    let upper = BENCH.request("POST", "/stream/upper", "", &body);
    assert!(upper.body == body.to_ascii_uppercase());
    assert_eq!(BENCH.text("/stream/"), "1 2 3 4 5 ");
    let form = BENCH.request("POST", "/stream/form", "", "a=%C3%BC&a=2&b=");
    assert_eq!(form.body, r#"[["a", "ü"], ["a", "2"], ["b", ""]]"#);
    let head = BENCH.request("HEAD", "/stream/whole", "", "");
    assert_eq!((head.status, head.body.as_str()), (207, ""));
}

fn what_a_script_does_first_it_does_once() {
    deploy(
        "once",
        "
import gc, time
print('at deployment')
count = 0
INDEX = {f'k{i}': i for i in range(1000)}
THEN = time.time()
def handler(request):
    global count
    count += 1
    return f'{count} {INDEX[\"k999\"]} {0 <= time.time() - THEN < 600} {gc.isenabled()}'
",
    );
    for _ in 0..5 {
        assert_eq!(BENCH.text("/once/"), "1 999 True True");
    }
    let log = BENCH.log("once");
    let said = log.iter().filter(|line| *line == "at deployment");
    assert_eq!(said.count(), 1, "{log:?}");
}

fn errors_name_file_line_and_stack() {
    let syntax = refused("a = 1\nb = = 2").to_string();
    assert!(syntax.contains("main.py:2: SyntaxError: "), "{syntax}");
    let raised = refused("def f(): raise ValueError('boom')\n\nf()").to_string();
    assert!(raised.contains("main.py:1: ValueError: boom"), "{raised}");
    assert!(raised.contains("<module> (main.py:3)"), "{raised}");
    deploy(
        "fails",
        "def inner(o): return o.x\ndef handler(request):\n  return inner(1)",
    );
    let answer = BENCH.get("/fails/");
    assert_eq!(answer.status, 502, "{answer:?}");
    let is_whole = |line: &faasw::LogLine| line.text.starts_with("AttributeError: ");
    let log = BENCH.log_once("fails", |lines| lines.iter().any(is_whole));
    let log: Vec<&str> = log.iter().map(|line| line.text.trim()).collect();
    assert_eq!(log[0], "Traceback (most recent call last):", "{log:?}");
    assert_eq!(log[1], r#"File "/app/main.py", line 3, in handler"#);
    assert_eq!(log[2], "return inner(1)");
    deploy("fails", HELLO);
    assert_eq!(BENCH.text("/fails/"), "hello");
}

/// The engine and the script were frozen with generators that had been seeded.
fn nothing_random_is_the_same_in_two_forks() {
    deploy(
        "draws",
        "
import os, random, secrets, uuid
from random import random as early
FIRST = early()
def handler(request):
    return ' '.join(map(str, (FIRST, random.random(), early(), uuid.uuid4(), uuid.uuid1().node,
                              secrets.token_hex(8), os.urandom(8).hex(), drawn(), STORE.execute(DRAW).fetchone()[0])))
import sqlite3
from statistics import NormalDist
STORE = sqlite3.connect(':memory:')
DRAW = 'select random()'
def drawn():
    return NormalDist(0, 1).samples(1)[0]
",
    );
    deploy(
        "bell",
        "def handler(request):\n  from statistics import NormalDist\n  return f'0 {NormalDist(0, 1).samples(1)[0]}'",
    );
    deploy(
        "late",
        "def handler(request):\n  import random, tempfile\n  return f'0 {random.random()} {next(tempfile._get_candidate_names())}'",
    );
    for (name, columns) in [("draws", 9), ("late", 3), ("bell", 2)] {
        let drawn: Vec<String> = (0..100).map(|_| BENCH.text(&format!("/{name}/"))).collect();
        for column in 1..columns {
            let values = drawn
                .iter()
                .map(|line| line.split(' ').nth(column).unwrap());
            let values: HashSet<_> = values.collect();
            assert_eq!(values.len(), 100, "{name} {column}");
        }
    }
    let first = |name: &str| BENCH.text(name).split(' ').next().unwrap().to_owned();
    let before = first("/draws/");
    deploy(
        "draws",
        "import random\nFIRST = random.random()\ndef handler(request): return f'{FIRST} '",
    );
    assert_ne!(before, first("/draws/"));
}

/// What would be the same in all requests is not drawn unless that is asked for.
fn secrets_are_not_drawn_at_deployment_unasked() {
    for text in [
        "import secrets\nKEY = secrets.token_hex()\ndef handler(request): return KEY",
        "import uuid\nKEY = str(uuid.uuid4())\ndef handler(request): return KEY",
        "import random\nKEY = random.Random().random()\ndef handler(request): return str(KEY)",
        "import os\nKEY = os.urandom(4).hex()\ndef handler(request): return KEY",
    ] {
        let error = refused(text);
        let is_it = matches!(error, DeployError::Seed(SeedError::ScriptDrew(_)));
        assert!(is_it, "{text}: {error:?}");
        let options = FunctionOptions::default().freeze(FreezePolicy::AfterInit);
        BENCH.deploy("secret", &one(text), options);
        assert_eq!(BENCH.text("/secret/"), BENCH.text("/secret/"));
    }
}

fn the_examples_do_what_they_say() {
    let example = |name: &str| {
        let path = format!("examples/python/{name}");
        String::from_utf8(e2e::file(&path)).unwrap()
    };
    deploy("hello", &example("hello.py"));
    assert!(BENCH.text("/hello/").starts_with("Hello from http://"));

    deploy("api", &example("api.py"));
    let found = BENCH.text("/api/books?q=LEM");
    assert!(found.contains("Stanisław Lem") && !found.contains("Kindred"));
    assert_eq!(BENCH.get("/api/books/4").status, 404);
    let book = r#"{"title":"Roadside Picnic","author":"Strugatsky","year":1972}"#;
    let added = BENCH.request("POST", "/api/books", "", book);
    assert_eq!(added.status, 201, "{added:?}");
    assert!(added.body.starts_with(r#"{"id": 4,"#), "{added:?}");
    assert_eq!(BENCH.request("POST", "/api/books", "", "{").status, 400);
    assert_eq!(BENCH.request("POST", "/api/books", "", "null").status, 422);
    assert_eq!(BENCH.get("/api/books/4").status, 404);

    let files = ["main.py", "template.py", "layout.html"]
        .map(|name| (name, example(&format!("page/{name}"))));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    BENCH.deploy("page", &bundle(&files), FunctionOptions::default());
    let page = BENCH.text("/page/?name=%3Cb%3E&name=%C3%BC");
    assert!(page.contains("<h1>2 of us</h1>"), "{page}");
    let list = "<ul><li>&lt;b&gt;</li><li>ü</li></ul>";
    assert!(page.contains(list), "{page}");

    deploy("csv", &example("csv_lines.py"));
    let csv = "name,said\r\n\"Lem, S.\",\"\"\"yes\"\"\nno\"\nü,";
    let lines = BENCH.request("POST", "/csv/", "", csv).body;
    assert_eq!(
        lines,
        "{\"name\": \"Lem, S.\", \"said\": \"\\\"yes\\\"\\nno\"}\n{\"name\": \"ü\", \"said\": \"\"}\n"
    );
    assert_eq!(BENCH.get("/csv/").status, 405);

    let options = FunctionOptions::default().env("SECRET", "It's a Secret to Everybody");
    BENCH.deploy("webhook", &one(&example("webhook.py")), options);
    // The pair is GitHub's own example.
    let signed = "x-hub-signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\n";
    let forged = BENCH.request("POST", "/webhook/", signed, "Hello, World?");
    assert_eq!(forged.status, 401, "{forged:?}");
    assert_eq!(BENCH.request("POST", "/webhook/", "", "x").status, 401);
    // That body is signed, but no JSON.
    let answer = BENCH.request("POST", "/webhook/", signed, "Hello, World!");
    assert_eq!(answer.status, 502, "{answer:?}");
    BENCH.log_once("webhook", |lines| {
        lines
            .iter()
            .any(|line| line.text.contains("JSONDecodeError"))
    });
}

/// Top levels that never end are engines' affair: `e2e_engines`.
fn hostile_scripts_end_alone() {
    let tight = || {
        FunctionOptions::default()
            .cpu_time(time_limit(3))
            .first_byte(time_limit(3))
    };
    deploy("good", HELLO);
    for (text, wanted) in [
        (
            "a = []\nwhile True: a.append(bytes(1 << 20))",
            "MemoryError",
        ),
        ("a = []\nwhile True: a.append([a])", "MemoryError"),
        ("import json\njson.loads('[' * 100000)", "trap"),
        (
            "import sys\nsys.stdout = sys.stderr = None\nraise ValueError('x')",
            "ValueError: x",
        ),
        (
            "import builtins\nfor name in dir(builtins): setattr(builtins, name, None)",
            "",
        ),
        ("import sys\nsys.modules.clear()\nraise ValueError('x')", ""),
        (
            "import sys\nfor module in list(sys.modules.values()): vars(module).clear()",
            "",
        ),
        (
            "class E(BaseException):\n  __class__ = property(lambda s: 1 / 0)\nraise E",
            "",
        ),
        ("import os\nos._exit(0)", ""),
    ] {
        let said = refused(text).to_string();
        assert!(said.contains(wanted), "{text}: {said}");
    }
    let handlers = [
        ("fills", "a = []\n  while True: a.append([a])", 502),
        (
            "nests",
            "a = []\n  for _ in range(100000): a = [a]\n  return repr(a)",
            502,
        ),
        (
            "floods",
            "for _ in range(5000): print('x' * 1000)\n  return ''",
            200,
        ),
        ("exits", "import os\n  os._exit(1)", 502),
        ("spins", "while True: pass", 504),
        ("sleeps", "import time\n  time.sleep(10000)", 504),
        (
            "spoils",
            "import sys\n  sys.stdout = sys.stderr = None\n  1 / 0",
            502,
        ),
    ];
    for (name, body, status) in handlers {
        let text = format!("def handler(request):\n  {body}\n");
        BENCH.deploy(name, &one(&text), tight());
        let answer = BENCH.get(&format!("/{name}/"));
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    assert_eq!(BENCH.text("/good/"), "hello");
}

/// Ten scripts have one engine below them, and little of their own.
fn scripts_share_their_engine() {
    for number in 0..10 {
        let name = format!("s{number}");
        deploy(&name, &format!("def handler(request): return '{number}'"));
        assert_eq!(BENCH.text(&format!("/{name}/")), number.to_string());
    }
    let tree = BENCH.node.tree();
    let engines = tree.iter().filter(|seed| seed.is_shared && seed.level == 2);
    let engine: Vec<_> = engines.map(|seed| seed.layer_bytes).collect();
    assert_eq!(engine.len(), 1, "{tree:?}");
    let mut all = engine[0];
    for number in 0..10 {
        let name = format!("s{number}");
        let seed = tree.iter().find(|seed| seed.name.contains(&name)).unwrap();
        assert!(seed.level == 3 && seed.layer_bytes <= 2 << 20, "{seed:?}");
        all += seed.layer_bytes;
        // Ten take little more than one.
        assert!(all * 2 <= (engine[0] + seed.layer_bytes) * 3, "{tree:?}");
    }
}

/// What `faasw new python` makes.
fn a_new_folder_is_a_function() {
    let handler = e2e::file("host/src/cli/templates/python/handler.py");
    deploy("new", &String::from_utf8(handler).unwrap());
    assert_eq!(BENCH.text("/new/?name=world"), "Hello, world!\n");
    assert_eq!(BENCH.text("/new/?name=%C3%BC&lang=de"), "Hallo, ü!\n");
}

fn main() {
    e2e::main(tests![
        a_script_needs_nothing_else,
        flask_runs_as_it_is,
        starlette_runs_as_it_is,
        bottle_and_jinja_run_as_they_are,
        bodies_stream_both_ways,
        a_body_may_be_left_unread,
        files_have_changed_with_a_new_version,
        what_a_script_does_first_it_does_once,
        errors_name_file_line_and_stack,
        nothing_random_is_the_same_in_two_forks,
        secrets_are_not_drawn_at_deployment_unasked,
        the_examples_do_what_they_say,
        hostile_scripts_end_alone,
        scripts_share_their_engine,
        a_new_folder_is_a_function,
    ]);
}
