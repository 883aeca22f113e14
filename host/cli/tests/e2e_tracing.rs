//! The ID of a request, in real microVMs: it is the same wherever it appears, differs between
//! requests, and cannot be forged by a function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use common::raw::{RawResponse, request};
use e2e::{
    Bench, limits,
    process::{Running, faasw, get, stdout_of},
    until,
};
use faasw::{AccessRecord, Event, FunctionOptions, LogLine, LogStream, Node, WarmUpRequest};
use serde_json::Value;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The access records of a node's requests, and the lines of its functions' logs.
#[derive(Clone, Default)]
struct ObservedEvents {
    requests: Arc<Mutex<Vec<AccessRecord>>>,
    lines: Arc<Mutex<Vec<LogLine>>>,
}

impl ObservedEvents {
    /// Returns the record of a request, once it exists: a client may have read the response before
    /// the request is over.
    fn request(&self, id: &str) -> AccessRecord {
        let find = || {
            let requests = self.requests.lock().unwrap();
            let found = requests
                .iter()
                .find(|record| record.request_id.as_str() == id);
            found.cloned()
        };
        until("the request is told", || find().is_some());
        find().unwrap()
    }
}

fn observed_bench() -> (Bench, ObservedEvents) {
    let events = ObservedEvents::default();
    let sink = events.clone();
    let builder = Node::builder()
        .observe_requests(true)
        .observe(move |event| match event {
            Event::Request { record } => sink.requests.lock().unwrap().push(record.clone()),
            Event::Log { line, .. } => sink.lines.lock().unwrap().push(line.clone()),
            _ => {}
        });
    let bench = Bench::start(builder, limits());
    bench.probe();
    (bench, events)
}

fn id(answer: &RawResponse) -> String {
    let id = answer.header("x-request-id").expect("an id").to_owned();
    assert_eq!(id.len(), 32, "{id}");
    id
}

fn of<'a>(lines: &'a [LogLine], id: &str) -> Vec<&'a LogLine> {
    let is_its = |line: &&LogLine| line.request_id.is_some_and(|other| other.as_str() == id);
    lines.iter().filter(is_its).collect()
}

fn header_log_problem_and_event_have_the_same_id() {
    let (bench, events) = observed_bench();
    for (path, status, problem, streams) in [
        ("log", 200, None, &[LogStream::Out, LogStream::Err][..]),
        ("trap/unreachable", 502, Some("trapped"), &[LogStream::Node]),
        ("no-response", 502, Some("no-response"), &[LogStream::Node]),
    ] {
        let path = format!("/probe/{path}");
        let answer = bench.request("GET", &path, &format!("traceparent: {PARENT}\r\n"), "");
        assert_eq!(answer.status, status, "{answer:?}");
        let id = id(&answer);
        let lines = bench.log_once("probe", |lines| {
            let its = of(lines, &id);
            let has = |stream| its.iter().any(|line| line.stream == stream);
            streams.iter().all(|stream| has(*stream))
        });
        let its = of(&lines, &id);
        assert!(
            its.iter().all(|line| line
                .trace
                .is_some_and(|trace| trace.to_string() == PARENT[3..52])),
            "{its:?}"
        );
        let instances: HashSet<u64> = its.iter().map(|line| line.instance).collect();
        assert_eq!(instances.len(), 1, "{its:?}");
        let record = events.request(&id);
        assert_eq!(record.status, Some(status));
        assert_eq!(record.problem, problem);
        assert_eq!(record.function.as_deref(), Some("probe"));
        assert_eq!(record.target, path);
        assert!(
            record
                .instance
                .is_some_and(|number| instances.contains(&number))
        );
        assert_eq!(
            record.trace.map(|trace| trace.to_string()),
            Some(PARENT[3..52].into())
        );
        assert_eq!(record.body_bytes, answer.bytes.len() as u64);
        assert!(record.is_whole);
        if problem.is_some() {
            assert_eq!(answer.problem("request_id"), id);
        }
        let lines = events.lines.lock().unwrap();
        assert_eq!(of(&lines, &id).len(), its.len());
    }
    bench.end();
}

fn a_function_sees_only_the_ids_of_its_own_request() {
    let (bench, _told) = observed_bench();
    bench.cgi();
    // The instances include reset ones.
    let mut ids = HashSet::new();
    for _ in 0..20 {
        let answer = bench.request("GET", "/probe/echo", "X-Request-Id: theirs\r\n", "");
        let id = id(&answer);
        let seen: Vec<_> = answer
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("x-request-id: "))
            .collect();
        assert_eq!(seen, [&id]);
        assert!(ids.insert(id));
    }
    let fields = format!("traceparent: {PARENT}\r\ntracestate: a=1\r\n");
    let answer = bench.request("GET", "/cgi/env", &fields, "");
    let id = id(&answer);
    for variable in [
        format!("HTTP_X_REQUEST_ID={id}"),
        format!("HTTP_TRACEPARENT={PARENT}"),
        "HTTP_TRACESTATE=a=1".to_owned(),
    ] {
        assert!(
            answer.body.lines().any(|line| line == variable),
            "{answer:?}"
        );
    }
    bench.end();
}

/// An ID contains nothing from a seed, and no two requests share one, at once or one after the
/// other.
fn concurrent_requests_have_distinct_ids() {
    const CLIENTS: usize = 16;
    const EACH: usize = 12;
    let (bench, _told) = observed_bench();
    let address = bench.address;
    let clients = async {
        let clients = (0..CLIENTS).map(|_| {
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..EACH {
                    let answer = request(address, "GET", "/probe/log", "", "").await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    ids.push(id(&answer));
                }
                ids
            })
        });
        let mut ids = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            ids.extend(client.await.unwrap());
        }
        ids
    };
    let ids = bench.block_on(clients);
    let distinct: HashSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), CLIENTS * EACH);
    // The log keeps only the newest lines. Each request has all its lines, of one instance, unless
    // its oldest lines are gone.
    let lines = bench.node.logs("probe", usize::MAX).unwrap();
    let mut by_id: HashMap<&str, Vec<&LogLine>> = HashMap::new();
    for line in &lines {
        if let Some(id) = &line.request_id {
            by_id.entry(id.as_str()).or_default().push(line);
        }
    }
    let whole = by_id.values().filter(|lines| lines.len() == 7).count();
    assert!(whole > 0 && by_id.len() - whole <= CLIENTS, "{by_id:?}");
    for (id, lines) in by_id {
        assert!(distinct.contains(&id.to_owned()));
        assert!(lines.iter().all(|line| line.instance == lines[0].instance));
    }
    bench.end();
}

/// A command that writes lines in another request's name, and a response with a forged ID.
const FORGES: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "Content-Type: text/plain\nX-Request-Id: forged\n\nhello\n")
  (data (i32.const 256)
    "2026-01-01T00:00:00.000Z 7/feedfacefeedfacefeedfacefeedface out forged\n"
    "\0d7/feed out x\n{\22request_id\22:\22forged\22}\n")
  (data (i32.const 0) "\40\00\00\00\35\00\00\00")
  (data (i32.const 8) "\00\01\00\00\6d\00\00\00")
  (func (export "_start")
    (drop (call $write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 16)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

/// Returns the lines of an access log, once it has `count` of them.
fn records(path: &Path, count: usize) -> Vec<Value> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    until("requests are in the access log", || {
        read().lines().count() >= count
    });
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
    let records: Vec<Value> = read().lines().map(parse).collect();
    assert_eq!(records.len(), count, "{records:?}");
    records
}

fn a_confined_node_logs_the_id_and_it_cannot_be_forged() {
    let folder = tempfile::tempdir().unwrap();
    let (data, logs) = (folder.path().join("data"), folder.path().join("logs"));
    std::fs::create_dir(&logs).unwrap();
    let file = folder.path().join("forge.wat");
    std::fs::write(&file, FORGES).unwrap();
    let path = logs.join("access.log");
    let options = [
        "--access-log",
        path.to_str().unwrap(),
        "--log-format",
        "json",
    ];
    let mut node = Running::serving(&data, &options);
    let address = node.address();
    stdout_of(&["deploy", file.to_str().unwrap()], &data);
    let probe = e2e::root().join("tests/fixtures/http-probe.wasm");
    stdout_of(
        &["deploy", probe.to_str().unwrap(), "--name", "probe"],
        &data,
    );

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hostile = "User-Agent: a\u{202e}b \"}\\n{\"forged\":1}\r\nX-Request-Id: feedface\r\n";
    let asking = request(address, "GET", "/forge/{\"x\":1}?a=%0d%0a", hostile, "");
    let answer = runtime.block_on(asking);
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, "hello\n"),
        "{answer:?}"
    );
    let first = id(&answer);
    let trapped = get(address, "/probe/trap/unreachable");
    let second = id(&trapped);
    assert_eq!(trapped.problem("request_id"), second);

    let both = records(&path, 2);
    for (record, id) in both.iter().zip([&first, &second]) {
        assert_eq!(record["request_id"], **id, "{record}");
        assert!(record["instance"].is_u64() && record["milliseconds"].is_f64());
    }
    assert_eq!(both[0]["client_request_id"], "feedface");
    assert_eq!(both[0]["target"], "/forge/{\"x\":1}?a=%0d%0a");
    assert_eq!(both[0]["user_agent"], "a\u{202e}b \"}\\n{\"forged\":1}");
    assert_eq!(
        (&both[1]["problem"], &both[1]["status"]),
        (&"trapped".into(), &502.into())
    );
    // Characters that change the direction of text are escaped, as JSON allows.
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.is_ascii() && text.contains("\\u202e"), "{text}");

    // Each line of the function's log has the request's own ID, in the file and by the command.
    let text = std::fs::read_to_string(data.join("logs/forge.log")).unwrap();
    assert!(text.lines().count() >= 3, "{text}");
    for line in text.lines() {
        let whose = line.split(' ').nth(1).unwrap();
        let (_, id) = whose.split_once('/').unwrap();
        assert_eq!(id, first, "{line}");
    }
    let lines: Value =
        serde_json::from_str(&stdout_of(&["logs", "forge", "--json"], &data)).unwrap();
    for line in lines.as_array().unwrap() {
        assert_eq!(line["request_id"], first, "{line}");
    }
    // The node's own events have the ID, too.
    node.said("request failed");
    let events = node.stderr();
    let failed = events.lines().find(|line| line.contains("request failed"));
    let failed: Value = serde_json::from_str(failed.unwrap()).unwrap();
    assert_eq!(failed["request_id"], second);

    // A log collector may move the file away: the node begins another one, and no record is missing
    // at the end.
    std::fs::rename(&path, logs.join("taken.log")).unwrap();
    let mut ids = HashSet::new();
    until("the file begins anew", || {
        ids.insert(id(&get(address, "/probe/hello")));
        path.exists()
    });
    assert_eq!(node.stop("TERM"), Some(0));
    for file in ["taken.log", "access.log"] {
        let text = std::fs::read_to_string(logs.join(file)).unwrap();
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            ids.remove(record["request_id"].as_str().unwrap());
        }
    }
    assert_eq!(ids, HashSet::new());
}

fn up_writes_requests_to_standard_output() {
    let probe = e2e::root().join("tests/fixtures/http-probe.wasm");
    let words = [
        "up",
        probe.to_str().unwrap(),
        "--name",
        "probe",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--access-log",
        "-",
    ];
    let mut up = Running::start(&words);
    let address = up.address();
    for path in ["/probe/hello", "/nobody/"] {
        let answer = get(address, path);
        let record: Value = serde_json::from_str(&up.line()).unwrap();
        assert_eq!(record["request_id"], id(&answer));
        assert_eq!(record["target"], path);
        assert_eq!(record["status"], answer.status);
    }
    assert_eq!(up.stop("TERM"), Some(0));
}

fn a_log_that_cannot_be_written_ends_the_node_before_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere/access.log");
    let data = folder.path().join("data");
    let output = faasw(&["serve", "--listen", "127.0.0.1:0"])
        .args(["--data-dir", data.to_str().unwrap()])
        .args(["--access-log", path.to_str().unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("access.log cannot be written"), "{said}");
}

/// A streamed response is recorded when it is over, with all its bytes. One that breaks off is
/// recorded as incomplete.
fn streams_are_recorded_when_they_end() {
    let (bench, events) = observed_bench();
    for path in ["body/3000000", "body/3000000?content-length=3000000"] {
        let answer = bench.get(&format!("/probe/{path}"));
        assert_eq!((answer.status, answer.bytes.len()), (200, 3_000_000));
        let record = events.request(&id(&answer));
        assert_eq!(record.body_bytes, 3_000_000);
        assert!(record.is_whole, "{record:?}");
        assert!(record.instance.is_some());
    }
    let answer = bench.get("/probe/drop-body/3000000");
    assert!(!answer.is_whole, "{}", answer.status);
    let id = id(&answer);
    let record = events.request(&id);
    assert!(!record.is_whole, "{record:?}");
    assert_eq!(record.status, Some(200));
    // The function's log has the reason, with the same ID.
    bench.log_once("probe", |lines| {
        let is_nodes = |line: &&LogLine| line.stream == LogStream::Node;
        of(lines, &id).into_iter().any(|line| is_nodes(&line))
    });
    bench.end();
}

/// All requests find what is in a seed, so a request that no client made has no ID there.
fn a_warm_up_has_no_id() {
    let (bench, events) = observed_bench();
    let options = FunctionOptions::default().warm_up(WarmUpRequest::new("/log").unwrap());
    bench.function("warm", "tests/fixtures/http-probe.wasm", options);
    let lines = bench.node.logs("warm", usize::MAX).unwrap();
    assert!(!lines.is_empty());
    assert!(
        lines.iter().all(|line| line.request_id.is_none()),
        "{lines:?}"
    );
    let answer = bench.get("/warm/log");
    let lines = bench.node.logs("warm", usize::MAX).unwrap();
    assert!(!of(&lines, &id(&answer)).is_empty());
    events.request(&id(&answer));
    assert_eq!(events.requests.lock().unwrap().len(), 1);
    bench.end();
}

fn main() {
    e2e::main(tests![
        header_log_problem_and_event_have_the_same_id,
        a_function_sees_only_the_ids_of_its_own_request,
        concurrent_requests_have_distinct_ids,
        a_confined_node_logs_the_id_and_it_cannot_be_forged,
        up_writes_requests_to_standard_output,
        a_log_that_cannot_be_written_ends_the_node_before_it_serves,
        streams_are_recorded_when_they_end,
        a_warm_up_has_no_id,
    ]);
}
