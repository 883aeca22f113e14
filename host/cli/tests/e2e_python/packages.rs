//! Unmodified packages from PyPI: Flask, Starlette, Bottle, Jinja2.

use std::{
    collections::{BTreeMap, HashSet},
    sync::LazyLock,
    time::{SystemTime, UNIX_EPOCH},
};

use faasw::{FunctionOptions, WarmUpRequest};

use crate::e2e::{self, BENCH, archives::unpack, bundle};

/// The packages from PyPI that are stored for tests, by the paths of their files.
static PACKAGES: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| unpack("tests/fixtures/scripts/packages.tar.zst"));

/// Returns a script with packages beside it.
fn with_packages(files: &[(&str, &str)], packages: &[&str]) -> Vec<u8> {
    with(&PACKAGES, files, packages)
}

/// Returns a script with packages of an archive beside it.
pub fn with(
    archive: &BTreeMap<String, String>,
    files: &[(&str, &str)],
    packages: &[&str],
) -> Vec<u8> {
    let mut all = files.to_vec();
    for (path, text) in archive {
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

pub fn flask_runs_unchanged() {
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

pub fn starlette_runs_unchanged() {
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
    assert_eq!(
        BENCH.text("/starlette/?a=%C3%BC"),
        "/starlette/ ü at deployment"
    );
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

pub fn bottle_and_jinja_run_unchanged() {
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

/// Each version's files have another entity tag, so that a client's cached copy of an earlier
/// version does not match.
pub fn a_new_version_has_its_own_files() {
    let app = "from flask import Flask\napp = Flask(__name__)";
    let mut tags = HashSet::new();
    let second = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let mut last = 0;
    for text in ["v1", "v2"] {
        // Files are dated to the second.
        e2e::until("the next second", || second() > last);
        let upload = with_packages(&[("app.py", app), ("static/a.txt", text)], FLASK);
        BENCH.deploy("static", &upload, FunctionOptions::default());
        last = second();
        let answer = BENCH.get("/static/static/a.txt");
        assert_eq!(answer.body, text);
        let tag = answer.headers.iter().find(|(name, _)| name == "etag");
        assert!(tags.insert(tag.unwrap().1.clone()), "{tags:?}");
        let known = format!("if-none-match: {}\r\n", tag.unwrap().1);
        let again = BENCH.request("GET", "/static/static/a.txt", &known, "");
        assert_eq!(again.status, 304, "{again:?}");
    }
}

/// If a warm-up request compiled a template before the freeze, later requests find it compiled.
pub fn warm_up_requests_leave_compiled_templates() {
    let app = r#"
from flask import Flask, render_template
app = Flask(__name__)
@app.get("/")
def index():
    return render_template("page.html", name="ü")
@app.get("/compiled")
def compiled():
    return f"{len(app.jinja_env.cache)}"
"#;
    let page = "<p>{{ name }}</p>";
    let upload = with_packages(&[("app.py", app), ("templates/page.html", page)], FLASK);
    let cold = FunctionOptions::default;
    for (options, compiled) in [
        (cold(), "0"),
        (cold().warm_up(WarmUpRequest::new("/").unwrap()), "1"),
    ] {
        let deployed = BENCH.deploy("warm", &upload, options);
        assert_eq!(deployed.function.warm_ups.len().to_string(), compiled);
        for _ in 0..3 {
            assert_eq!(BENCH.text("/warm/compiled"), compiled);
            assert_eq!(BENCH.text("/warm/"), "<p>ü</p>");
        }
    }
}
