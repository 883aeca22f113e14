//! The proxy between a real client and a real upstream, with functions in real microVMs. It runs as
//! a program, and twice in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod client;
mod program;
mod upstream;

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{LazyLock, Mutex},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use client::{Client, get, request};
use edge_proxy::{Edge, EdgeService, Role, Route};
use faasw::{FunctionOptions, Node};
use libtest_mimic::{Arguments, Trial};
use pingora::server::{
    RunArgs, Server, ShutdownSignal, ShutdownSignalWatch, configuration::ServerConf,
};
use program::Program;
use rustix::process::Signal;
use tokio::{
    runtime::Runtime,
    sync::oneshot::{self, Receiver},
};
use upstream::Upstream;

const HELLO: &str = "../hello/hello.wasm";
const GATE: &str = "gate/gate.wasm";
/// A component with a behaviour for every path.
const PROBE: &str = "../../tests/fixtures/http-probe.wasm";
/// A CGI program that answers with its environment.
const ENVIRONMENT: &str = "../../tests/fixtures/cgi-probe.wasm";
const TRAP: &str = "../../tests/fixtures/wat/unreachable.wasm";

/// Returns a timeout of `seconds`, multiplied by `FAASW_TEST_SLOWNESS`: how much slower than bare
/// metal this machine is.
fn patience(seconds: u64) -> Duration {
    let slowness = std::env::var("FAASW_TEST_SLOWNESS").ok();
    let slowness = slowness.and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds) * slowness
}

/// The proxy that most tests share, and its upstream.
struct Bench {
    upstream: Upstream,
    address: SocketAddr,
    /// `None` after the tests have ended the program.
    program: Mutex<Option<Program>>,
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let upstream = Upstream::start();
    let program = Program::start(&[
        &format!("--upstream={}", upstream.address),
        &format!("--answer=/hello={HELLO}"),
        &format!("--answer=/echo={PROBE}"),
        &format!("--answer=/trap={TRAP}"),
        &format!("--rewrite=/members={GATE}"),
        &format!("--rewrite=/env={ENVIRONMENT}"),
    ]);
    Bench {
        upstream,
        address: program.address,
        program: Mutex::new(Some(program)),
    }
});

fn paths_without_a_route_are_forwarded() {
    for path in ["/", "/x/y?z=1", "/hellow", "/members-only"] {
        let answer = get(BENCH.address, path);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("server"), Some("upstream"));
        assert!(answer.body.starts_with(&format!("GET {path} HTTP/1.1\r\n")));
    }
    let body = "0123456789abcdef".repeat(16 << 10);
    let answer = request(BENCH.address, "POST", "/x", "", &body);
    assert!(answer.body.ends_with(&format!("\r\n\r\n{body}")));
}

fn a_function_answers_without_the_upstream() {
    let before = BENCH.upstream.requests();
    let answer = get(BENCH.address, "/hello/a?b=c");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body, "Hello from a microVM: GET /hello/a?b=c\n");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("text/plain; charset=utf-8"));
    let head = request(BENCH.address, "HEAD", "/hello", "", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(BENCH.upstream.requests(), before);
}

fn many_clients_are_answered_concurrently() {
    thread::scope(|scope| {
        for number in 0..16 {
            scope.spawn(move || {
                let path = format!("/hello/{number}");
                let answer = get(BENCH.address, &path);
                assert_eq!(answer.body, format!("Hello from a microVM: GET {path}\n"));
            });
        }
    });
}

fn a_connection_serves_one_request_after_the_other() {
    let mut client = Client::connect(BENCH.address);
    for path in ["/hello/1", "/forwarded", "/hello/2"] {
        client.write(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let answer = client.read();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains(&format!("GET {path}")), "{answer:?}");
    }
}

fn bodies_reach_functions_completely() {
    let body = "0123456789abcdef".repeat(16 << 10);
    let answer = request(BENCH.address, "PUT", "/echo/x?y=z", "X-Own: 1\r\n", &body);
    let (head, echoed) = answer.body.split_once("\n\n").unwrap();
    assert!(head.starts_with("PUT /echo/x?y=z\n"), "{head}");
    assert!(head.lines().any(|line| line == "x-own: 1"), "{head}");
    assert!(echoed == body);

    let mut client = Client::connect(BENCH.address);
    client.write("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write("5\r\nhello\r\n");
    client.write("7\r\n, world\r\n0\r\n\r\n");
    let answer = client.read();
    assert!(answer.body.ends_with("\n\nhello, world"), "{answer:?}");
}

fn bodies_are_passed_in_both_directions_concurrently() {
    let mut client = Client::connect(BENCH.address);
    client.write("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write("5\r\nhello\r\n");
    client.read_until("\n\nhello");
    // The body is larger than all buffers on the way, but is sent in pieces.
    let piece = "0123456789abcdef".repeat(1 << 10);
    for _ in 0..256 {
        client.write(&format!("{:x}\r\n{piece}\r\n", piece.len()));
        let mut echoed = String::new();
        while echoed.len() < piece.len() {
            echoed += &client.next_chunk();
        }
        assert!(echoed == piece);
    }
    client.write("0\r\n\r\n");
    assert!(client.is_at_end_of_body());
}

fn expect_100_continue_is_answered() {
    let mut client = Client::connect(BENCH.address);
    client.write(
        "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    assert_eq!(client.read().status, 100);
    client.write("hello");
    let answer = client.read();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.ends_with("\n\nhello"), "{answer:?}");
}

fn failures_of_functions_and_upstream_are_distinguished() {
    let answer = get(BENCH.address, "/trap");
    assert_eq!(answer.status, 502, "{answer:?}");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
}

fn a_function_rewrites_both_heads() {
    let fields = "Authorization: Bearer tulip\r\nX-Member: eve\r\nX-Own: 1\r\n";
    let answer = request(BENCH.address, "POST", "/members/x", fields, "body");
    assert_eq!(answer.status, 200, "{answer:?}");
    // The upstream answers with the request that it received.
    let seen = answer.body.to_lowercase();
    assert!(seen.starts_with("post /members/x http/1.1\r\n"), "{seen}");
    assert!(seen.contains("\r\nx-member: alice\r\n"), "{seen}");
    assert!(seen.contains("\r\nx-own: 1\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n\r\nbody"), "{seen}");
    for gone in ["authorization", "eve", "x-edge"] {
        assert!(!seen.contains(gone), "{seen}");
    }
    assert_eq!(answer.header("cache-control"), Some("private"));
    assert_eq!(answer.header("server"), None);
    assert_eq!(answer.header("x-upstream"), Some("yes"));
}

fn a_function_that_rejects_a_request_answers_it() {
    let before = BENCH.upstream.requests();
    for fields in ["", "Authorization: Bearer daisy\r\n"] {
        let answer = request(BENCH.address, "POST", "/members", fields, "body");
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.body, "Members only.\n");
    }
    assert_eq!(BENCH.upstream.requests(), before);
}

fn a_rewriting_function_receives_only_the_head() {
    let fields = "X-Edge-Phase: response\r\nX-Edge-Status: 200\r\nX-Own: 1\r\n";
    let answer = request(BENCH.address, "POST", "/env?x=y", fields, "body");
    let seen: Vec<&str> = answer.body.lines().collect();
    for variable in [
        "REQUEST_METHOD=POST",
        "PATH_INFO=/env",
        "QUERY_STRING=x=y",
        "REMOTE_ADDR=127.0.0.1",
        "HTTP_X_OWN=1",
        "HTTP_X_EDGE_PHASE=request",
    ] {
        assert!(seen.contains(&variable), "{variable}: {answer:?}");
    }
    for hidden in ["CONTENT_LENGTH", "HTTP_X_EDGE_STATUS"] {
        assert!(!answer.body.contains(hidden), "{hidden}: {answer:?}");
    }
}

fn a_response_too_large_for_the_function_is_not_forwarded() {
    // More fields than a node passes to a function.
    let fields = "Authorization: Bearer tulip\r\n";
    let answer = request(BENCH.address, "GET", "/members/many-fields", fields, "");
    assert_eq!(answer.status, 502, "{answer:?}");
}

fn requests_in_progress_finish_after_sigterm() {
    let grace = patience(2).as_secs();
    let program = Program::start(&[
        &format!("--answer=/echo={PROBE}"),
        &format!("--grace={grace}"),
    ]);
    let mut client = Client::connect(program.address);
    client.write(
        "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    // The proxy has started to process the request.
    assert_eq!(client.read().status, 100);
    program.signal(Signal::TERM);
    client.write("hello");
    let answer = client.read();
    assert!(answer.body.ends_with("\n\nhello"), "{answer:?}");
    assert_eq!(program.ended(), Some(0));
}

fn sigint_ends_it_at_once() {
    let program = Program::start(&[&format!("--answer=/hello={HELLO}")]);
    assert_eq!(get(program.address, "/hello").status, 200);
    program.signal(Signal::INT);
    assert_eq!(program.ended(), Some(0));
}

fn start_failures_are_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--listen={}", taken.local_addr().unwrap());
    let not_wasm = format!("--answer=/x={}", file!());
    for (words, said) in [
        (vec![listen.as_str()], "in use"),
        (
            vec!["--listen=127.0.0.1:0", "--answer=/x=nowhere.wasm"],
            "nowhere.wasm",
        ),
        (vec!["--listen=127.0.0.1:0", &not_wasm], "main.rs"),
        (vec!["--answer=x"], "/path=function.wasm"),
    ] {
        let errors = Program::refused(&words);
        assert!(errors.contains(said), "{words:?}: {errors}");
    }
}

fn several_nodes_serve_in_one_process() {
    /// Ends the server when its test requests it.
    struct ShutdownOnRequest(tokio::sync::Mutex<Receiver<()>>);

    #[async_trait]
    impl ShutdownSignalWatch for ShutdownOnRequest {
        async fn recv(&self) -> ShutdownSignal {
            let _ = (&mut *self.0.lock().await).await;
            ShutdownSignal::FastShutdown
        }
    }

    let runtime = Runtime::new().unwrap();
    let configuration = ServerConf {
        threads: 2,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let upstream = BENCH.upstream.address;
    // The two nodes have different functions under equal names.
    let nodes = [HELLO, PROBE].map(|module| {
        let node = runtime.block_on(Node::builder().zygotes(2).start());
        let node = node.unwrap();
        let module = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(module)).unwrap();
        let deployed = node.deploy("f", module, FunctionOptions::default());
        runtime.block_on(deployed).unwrap();
        let edge = Edge {
            node: node.clone(),
            upstream,
            routes: vec![Route {
                prefix: "/echo".into(),
                role: Role::Answer,
                function: "f".into(),
            }],
        };
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        server.add_service(EdgeService::new(&server.configuration, edge, socket).unwrap());
        (node, address)
    });
    let (tell, told) = oneshot::channel();
    let shutdown_signal = Box::new(ShutdownOnRequest(told.into()));
    let serving = thread::spawn(move || server.run(RunArgs { shutdown_signal }));

    thread::scope(|scope| {
        for _ in 0..4 {
            for ((_, address), begin) in nodes.iter().zip(["Hello from", "GET /echo/x\n"]) {
                scope.spawn(move || {
                    let answer = get(*address, "/echo/x");
                    assert!(answer.body.starts_with(begin), "{answer:?}");
                });
            }
        }
    });

    tell.send(()).unwrap();
    serving.join().unwrap();
    // The nodes outlive the server, because they have their own runtime.
    for (node, _) in &nodes {
        let request = http::Request::get("/echo").body(String::new()).unwrap();
        assert_eq!(runtime.block_on(node.invoke("f", request)).status(), 200);
        runtime.block_on(node.shutdown());
    }
}

type Test = (&'static str, fn());

macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name as fn())),*]
    };
}

const TESTS: &[Test] = tests![
    paths_without_a_route_are_forwarded,
    a_function_answers_without_the_upstream,
    many_clients_are_answered_concurrently,
    a_connection_serves_one_request_after_the_other,
    bodies_reach_functions_completely,
    bodies_are_passed_in_both_directions_concurrently,
    expect_100_continue_is_answered,
    failures_of_functions_and_upstream_are_distinguished,
    a_function_rewrites_both_heads,
    a_function_that_rejects_a_request_answers_it,
    a_rewriting_function_receives_only_the_head,
    a_response_too_large_for_the_function_is_not_forwarded,
    requests_in_progress_finish_after_sigterm,
    sigint_ends_it_at_once,
    start_failures_are_explained,
    several_nodes_serve_in_one_process,
];

/// Runs the tests one after the other. Without KVM, reports each test as ignored.
fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let missing = faasw::host::check_kvm().err();
    if let Some(why) = &missing {
        eprintln!("SKIPPED, all of it: {why}");
    }
    let trials = TESTS.iter().map(|(name, test)| {
        let test = *test;
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(missing.is_some())
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if missing.is_none() {
        drop(BENCH.program.lock().unwrap().take());
    }
    conclusion.exit();
}
