//! Scripts in Python, with the engine that faasw includes, in real microVMs. The environment of
//! such scripts is tested beside the engine: `guest-vm/runtime/tests/python.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

mod bodies;
mod calls;
mod hostile;
mod packages;

use std::collections::HashSet;

use bodies::{
    a_body_may_be_left_unread, binary_bodies_arrive_as_they_were_sent, bodies_stream_both_ways,
};
use calls::{clients_call_a_real_server, software_development_kits_call_a_real_server};
use e2e::{BENCH, bundle};
use faasw::{DeployError, DeployOutcome, FreezePolicy, FunctionOptions, LogStream, SeedError};
use hostile::{endless_top_levels_are_rejected, hostile_scripts_affect_no_other_request};
use packages::{
    a_new_version_has_its_own_files, bottle_and_jinja_run_unchanged, flask_runs_unchanged,
    starlette_runs_unchanged, warm_up_requests_leave_compiled_templates,
};

const HELLO: &str = "def handler(request): return 'hello'";

fn one(text: &str) -> Vec<u8> {
    bundle(&[("main.py", text)])
}

/// Deploys a script to the shared node.
fn deploy(name: &str, text: &str) -> DeployOutcome {
    BENCH.deploy(name, &one(text), FunctionOptions::default())
}

fn refused(text: &str) -> DeployError {
    let deploying = BENCH
        .node
        .deploy("refused", one(text), FunctionOptions::default());
    let deployed = BENCH.block_on(deploying);
    deployed.map(|done| panic!("{done:?}")).unwrap_err()
}

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

fn the_top_level_of_a_script_runs_once() {
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

/// Collections write to every object that exists. None runs before those objects are a request's
/// own.
fn cycles_are_collected_from_the_first_request_on() {
    let text = "
import gc
AT_TOP = gc.isenabled()
class Ring:
    def __init__(self):
        self.ring, self.data = self, bytes(4096)
def handler(request):
    if request.path == '/never':
        gc.disable()
    for _ in range(50_000):
        Ring()
    return f'{AT_TOP} {gc.isenabled()}'
";
    let options = FunctionOptions::default().memory(96 << 20);
    BENCH.deploy("cycles", &one(text), options);
    assert_eq!(BENCH.text("/cycles/"), "False True");
    assert_eq!(BENCH.get("/cycles/never").status, 502);
}

fn print_and_logging_are_the_log() {
    deploy(
        "logs",
        "
import logging, sys
log = logging.getLogger('shop')
def handler(request):
    print('printed', 'ü')
    print('two\\nlines', file=sys.stderr)
    log.warning('logged %s', 'ä')
    log.info('too little to be logged')
    return ''
",
    );
    BENCH.text("/logs/");
    let log = BENCH.log_once("logs", |lines| lines.len() >= 4);
    let said = |wanted| {
        let lines = log.iter().filter(|line| line.stream == wanted);
        lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(said(LogStream::Out), ["printed ü"]);
    assert_eq!(said(LogStream::Err), ["two", "lines", "logged ä"]);
    assert!(log.iter().all(|line| line.instance != 0), "{log:?}");
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

/// The engine and the script were frozen with seeded random generators.
fn random_values_differ_between_forks() {
    deploy(
        "draws",
        "
import os, random, secrets, uuid
from random import random as early
FIRST = early()
def handler(request):
    return ' '.join(map(str, (FIRST, random.random(), early(), uuid.uuid4(), uuid.uuid1().node,
                              secrets.token_hex(8), os.urandom(8).hex(), drawn(),
                              STORE.execute(DRAW).fetchone()[0], OWN.random())))
OWN = random.Random()
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
        "def handler(request):\n  from statistics import NormalDist\n  return f'0 \
         {NormalDist(0, 1).samples(1)[0]}'",
    );
    deploy(
        "late",
        "def handler(request):\n  import random, tempfile\n  return f'0 {random.random()} \
         {next(tempfile._get_candidate_names())}'",
    );
    for (name, columns) in [("draws", 10), ("late", 3), ("bell", 2)] {
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

/// Without an option, a script may not draw random numbers at deployment that all requests would
/// share.
fn reading_secrets_at_deployment_needs_an_explicit_option() {
    for text in [
        "import secrets\nKEY = secrets.token_hex()\ndef handler(request): return KEY",
        "import uuid\nKEY = str(uuid.uuid4())\ndef handler(request): return KEY",
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

fn the_examples_behave_as_documented() {
    let example = |name: &str| {
        let path = format!("examples/python/{name}");
        String::from_utf8(e2e::file(&path)).unwrap()
    };
    deploy("hello", &example("hello.py"));
    assert!(BENCH.text("/hello/").starts_with("Hello from http://"));

    deploy("counter", &example("counter.py"));
    for visit in 1..4 {
        let expected = format!("visit {visit}\n");
        assert_eq!(BENCH.text("/counter/a"), expected);
    }
    assert_eq!(BENCH.text("/counter/counts"), r#"{"/a": 3}"#);

    deploy("lambda", &example("aws_lambda.py"));
    let told = BENCH.text("/lambda/a?name=you");
    assert_eq!(told, r#"{"hello": "you", "path": "/a"}"#);

    deploy("upload", &example("upload.py"));
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; \
         filename=\"a\"\r\n\r\n{}\r\n--b--\r\n",
        "x".repeat(700_000)
    );
    let kind = "content-type: multipart/form-data; boundary=b\r\n";
    let told = BENCH.request("POST", "/upload/", kind, &form).body;
    assert!(told.contains("a: 700000 bytes"), "{told}");

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
        "{\"name\": \"Lem, S.\", \"said\": \"\\\"yes\\\"\\nno\"}\n\
         {\"name\": \"ü\", \"said\": \"\"}\n"
    );
    assert_eq!(BENCH.get("/csv/").status, 405);

    let options = FunctionOptions::default().env("SECRET", "It's a Secret to Everybody");
    BENCH.deploy("webhook", &one(&example("webhook.py")), options);
    // The pair is GitHub's own example.
    let signed = "x-hub-signature-256: \
         sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\n";
    let forged = BENCH.request("POST", "/webhook/", signed, "Hello, World?");
    assert_eq!(forged.status, 401, "{forged:?}");
    assert_eq!(BENCH.request("POST", "/webhook/", "", "x").status, 401);
    // This body is signed, but is no JSON.
    let answer = BENCH.request("POST", "/webhook/", signed, "Hello, World!");
    assert_eq!(answer.status, 502, "{answer:?}");
    BENCH.log_once("webhook", |lines| {
        lines
            .iter()
            .any(|line| line.text.contains("JSONDecodeError"))
    });
    // By `openssl dgst -sha256 -hmac`.
    let signed = "x-github-event: issues\r\n\
        x-hub-signature-256: sha256=\
        5ccdd8275f57d608741ad8390e42e8696ebfcd85607d9c2ef890769dda8f7568\r\n";
    let taken = BENCH.request("POST", "/webhook/", signed, r#"{"action":"opened"}"#);
    assert_eq!((taken.status, taken.body.as_str()), (204, ""), "{taken:?}");
    BENCH.log_once("webhook", |lines| {
        lines.iter().any(|line| line.text == "INFO issues opened")
    });
}

/// Ten scripts have one engine below them, and little memory each.
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
        // Ten scripts take little more memory than one.
        assert!(all * 2 <= (engine[0] + seed.layer_bytes) * 3, "{tree:?}");
    }
}

/// Deploys the output of `faasw new python`.
fn a_new_folder_is_a_function() {
    let handler = e2e::file("host/cli/src/templates/python/handler.py");
    deploy("new", &String::from_utf8(handler).unwrap());
    assert_eq!(BENCH.text("/new/?name=world"), "Hello, world!\n");
    assert_eq!(BENCH.text("/new/?name=%C3%BC&lang=de"), "Hallo, ü!\n");
}

fn main() {
    e2e::main(tests![
        a_script_needs_nothing_else,
        flask_runs_unchanged,
        starlette_runs_unchanged,
        bottle_and_jinja_run_unchanged,
        bodies_stream_both_ways,
        binary_bodies_arrive_as_they_were_sent,
        a_body_may_be_left_unread,
        a_new_version_has_its_own_files,
        warm_up_requests_leave_compiled_templates,
        the_top_level_of_a_script_runs_once,
        cycles_are_collected_from_the_first_request_on,
        print_and_logging_are_the_log,
        errors_name_file_line_and_stack,
        random_values_differ_between_forks,
        reading_secrets_at_deployment_needs_an_explicit_option,
        the_examples_behave_as_documented,
        hostile_scripts_affect_no_other_request,
        endless_top_levels_are_rejected,
        scripts_share_their_engine,
        a_new_folder_is_a_function,
        clients_call_a_real_server,
        software_development_kits_call_a_real_server,
    ]);
}
