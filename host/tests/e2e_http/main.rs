//! Functions in real microVMs answer HTTP: components, CGI commands, fresh
//! state, the freeze policy, logs and timing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;
mod e2e;

use std::{collections::HashSet, time::SystemTime};

use common::{raw, time_limit};
use e2e::{BENCH, Bench, limits};
use faasw::{Confinement, FreezePolicy, FunctionKind, FunctionOptions, LogLine, LogStream, Node};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The value of a line `NAME VALUE`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn has_line(text: &str, line: &str) {
    assert!(
        text.lines().any(|other| other == line),
        "no {line:?} in {text}"
    );
}

fn the_example_answers() {
    let deployed = BENCH.function(
        "hello",
        "examples/hello/hello.wasm",
        FunctionOptions::default(),
    );
    assert_eq!(deployed.function.kind, FunctionKind::HttpComponent);
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    for (path, seen) in [
        ("/hello", "/"),
        ("/hello/", "/"),
        ("/hello/a/b?c=d", "/a/b?c=d"),
    ] {
        assert_eq!(
            BENCH.text(path),
            format!("Hello from a microVM: GET {seen}\n")
        );
    }
}

fn a_request_arrives_whole_and_comes_back_whole() {
    BENCH.probe();
    let body = "0123456789abcdef".repeat(4096);
    let answer = BENCH.request(
        "PUT",
        "/probe/echo/x?y=z",
        "X-Multi: 1\r\nX-Multi: 2\r\n",
        &body,
    );
    assert_eq!(answer.status, 200);
    let (head, echoed) = answer.body.split_once("\n\n").unwrap();
    assert_eq!(echoed, body);
    assert_eq!(head.lines().next(), Some("PUT /echo/x?y=z"));
    has_line(head, "x-multi: 1");
    has_line(head, "x-multi: 2");
    has_line(head, &format!("content-length: {}", body.len()));
}

fn responses_keep_status_and_fields() {
    BENCH.probe();
    for status in [200, 201, 204, 304, 404, 418, 500, 599] {
        assert_eq!(BENCH.get(&format!("/probe/status/{status}")).status, status);
    }
    let answer = BENCH.get("/probe/headers");
    let of = |name| {
        answer
            .headers
            .iter()
            .filter(move |(other, _)| other == name)
    };
    let multi: Vec<_> = of("x-multi").map(|(_, value)| value.as_str()).collect();
    assert_eq!(multi, ["a", "b"]);
    assert_eq!(of("x-empty").count(), 1);
}

fn bodies_of_every_size_arrive() {
    BENCH.probe();
    for size in [0, 1, 4095, 65_537, 1 << 20, 5_000_000] {
        let body = BENCH.text(&format!("/probe/body/{size}"));
        assert_eq!(body.len(), size);
        let pattern = b"0123456789abcdef".iter().cycle();
        assert!(
            body.bytes().zip(pattern).all(|(one, other)| one == *other),
            "{size}"
        );
    }
    BENCH.cgi();
    let largest = "x".repeat(1 << 20);
    let answer = BENCH.request("POST", "/cgi/echo", "", "");
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    let answer = BENCH.request("POST", "/cgi/echo", "", &largest);
    assert!(answer.status == 200 && answer.body == largest);
}

fn a_stream_is_seen_chunk_by_chunk() {
    BENCH.function("drip", "fixtures/wat/drip.wasm", FunctionOptions::default());
    let answer = BENCH.block_on(async {
        let mut stream = TcpStream::connect(BENCH.address).await.unwrap();
        let request = b"GET /drip/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTE: trailers\r\nX-Faasw-Timing: 1\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut seen = Vec::new();
        while !contains(&seen, b"drip 1\n") {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        }
        // Four pauses before the last one.
        assert!(!contains(&seen, b"drip 5\n"));
        stream.read_to_end(&mut seen).await.unwrap();
        raw::parse(&seen)
    });
    assert!(answer.is_whole);
    assert_eq!(answer.body, "drip 1\ndrip 2\ndrip 3\ndrip 4\ndrip 5\n");
    // Where the time went is known at the end only.
    let (name, timing) = &answer.trailers[0];
    assert_eq!(name, "server-timing");
    assert!(timing.contains("exec;dur="), "{timing}");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn trailers_pass_both_ways() {
    BENCH.probe();
    let asked = BENCH.request("GET", "/probe/trailers", "TE: trailers\r\n", "");
    assert_eq!(asked.body, "body before trailers\n");
    let expected = ("x-trailer".to_owned(), "after the body".to_owned());
    assert_eq!(asked.trailers, [expected]);
    // Who does not take them gets none.
    let deaf = BENCH.get("/probe/trailers");
    assert_eq!(deaf.body, "body before trailers\n");
    assert_eq!(deaf.trailers, []);
    let sent = b"POST /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n";
    let echoed = BENCH.block_on(raw::send(BENCH.address, sent));
    assert!(
        echoed.status == 200 && echoed.body.ends_with("\n\nabc"),
        "{echoed:?}"
    );
}

fn large_bodies_pass_through_constant_memory() {
    BENCH.probe();
    // Emulated machines are slow: less of it shows the same.
    let size = (256 << 20) / common::time_limit(1).as_secs().max(1);
    let echoed = BENCH.block_on(async {
        let stream = TcpStream::connect(BENCH.address).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let sending = tokio::spawn(async move {
            let head = format!(
                "POST /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
            );
            writer.write_all(head.as_bytes()).await.unwrap();
            let piece = [b'x'; 64 << 10];
            let mut left = size as usize;
            while left > 0 {
                let now = left.min(piece.len());
                writer.write_all(&piece[..now]).await.unwrap();
                left -= now;
            }
            writer
        });
        let mut buffer = vec![0; 64 << 10];
        let mut received = 0;
        loop {
            match reader.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received += buffer[..count].iter().filter(|byte| **byte == b'x').count(),
            }
        }
        sending.await.unwrap();
        received as u64
    });
    // The echoed head has a few of its own.
    assert!(echoed >= size && echoed < size + 100, "{echoed} of {size}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|size| size.trim().strip_suffix(" kB"))
        .and_then(|size| size.parse::<u64>().ok())
        .unwrap();
    assert!(peak < 200 << 10, "the node took {peak} kB");
}

fn head_has_no_body() {
    BENCH.probe();
    let answer = BENCH.request("HEAD", "/probe/hello", "", "");
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
}

fn each_request_meets_a_fresh_machine() {
    BENCH.probe();
    BENCH.cgi();
    for path in ["/probe/count", "/cgi/count"] {
        for _ in 0..5 {
            assert_eq!(BENCH.text(path), "1\n");
        }
    }
    let all = BENCH.block_on(async {
        let requests = (0..8).map(|_| tokio::spawn(raw::get(BENCH.address, "/probe/count")));
        let mut answers = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            answers.push(request.await.unwrap().body);
        }
        answers
    });
    assert!(all.iter().all(|body| body == "1\n"), "{all:?}");
}

fn random_numbers_never_agree_after_the_fork() {
    BENCH.probe();
    BENCH.cgi();
    let mut seen = HashSet::new();
    for _ in 0..4 {
        let component = BENCH.text("/probe/random");
        for line in ["random", "insecure", "seed"] {
            assert!(
                seen.insert(value(&component, line).to_owned()),
                "{component}"
            );
        }
        let command = BENCH.text("/cgi/random");
        assert!(
            seen.insert(value(&command, "random").to_owned()),
            "{command}"
        );
    }
}

fn clocks_are_real_and_go_on() {
    BENCH.probe();
    let unix = |text: &str| {
        value(text, "wall")
            .split('.')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let monotonic = |text: &str| value(text, "monotonic").parse::<u64>().unwrap();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let first = BENCH.text("/probe/clock");
    let tolerance = common::time_limit(5).as_secs();
    assert!(
        unix(&first).abs_diff(now) <= tolerance,
        "{first} is not {now}"
    );
    assert!(monotonic(&first) > 0);

    let slept: u64 = BENCH.text("/probe/sleep/120").trim().parse().unwrap();
    assert!(slept >= 120, "{slept} ms");
    assert_eq!(BENCH.text("/probe/poll"), "ready 1\n");
    let slept: u64 = BENCH.text("/cgi/sleep/50").trim().parse().unwrap();
    assert!(slept >= 50, "{slept} ms");
}

fn the_environment_is_the_functions_own() {
    BENCH.probe();
    let seen = BENCH.text("/probe/env");
    has_line(&seen, "COLOUR=green");
    has_line(&seen, "arg probe");
    assert_eq!(seen.lines().count(), 2, "{seen}");
}

fn there_is_no_way_out() {
    BENCH.probe();
    assert_eq!(BENCH.text("/probe/fs"), "preopens 0\n");
    assert_eq!(BENCH.text("/probe/stdin"), "stdin 0\n");
    let sockets = BENCH.text("/probe/sockets");
    assert!(sockets.contains("access-denied"), "{sockets}");
    assert!(
        !sockets.lines().any(|line| line.contains("-bind ok")),
        "{sockets}"
    );
    let outgoing = BENCH.text("/probe/outgoing");
    assert!(outgoing.to_lowercase().contains("denied"), "{outgoing}");
    assert!(!outgoing.starts_with("answered"), "{outgoing}");
    let command = BENCH.text("/cgi/fs");
    assert!(
        !command.contains("open ok") && !command.contains("preopen yes"),
        "{command}"
    );
}

fn functions_compute_what_they_should() {
    BENCH.probe();
    assert_eq!(BENCH.text("/probe/compute"), "196418\n");
    let grown = BENCH.text("/probe/grow/100");
    assert!(
        grown.starts_with("old ") && grown.contains(" new "),
        "{grown}"
    );
    assert_eq!(BENCH.text("/probe/grow/65000"), "grow by 65000 failed\n");
}

fn functions_cannot_forge_the_framing() {
    BENCH.probe();
    BENCH.cgi();
    let forged = BENCH.get("/cgi/forged-headers");
    assert_eq!(forged.header("transfer-encoding"), None);
    assert_eq!(forged.header("keep-alive"), None);
    assert_eq!(forged.header("content-length"), Some("12"));
    assert_eq!(forged.body, "forged body\n");
    let told = BENCH.text("/probe/forbidden-header");
    for line in told
        .lines()
        .filter(|line| line.starts_with("\"transfer-encoding\""))
    {
        assert!(!line.contains("=ok"), "{line}");
    }
    assert_eq!(BENCH.get("/probe/trailers").body, "body before trailers\n");
}

fn commands_answer_in_cgi_style() {
    BENCH.cgi();
    let headers = "Content-Type: text/x\r\nX-Own: 1\r\nProxy: evil\r\n";
    let seen = BENCH
        .request("POST", "/cgi/env?q=1&r", headers, "body")
        .body;
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1",
        "REQUEST_METHOD=POST",
        "SCRIPT_NAME=/cgi",
        "PATH_INFO=/env",
        "QUERY_STRING=q=1&r",
        "CONTENT_TYPE=text/x",
        "CONTENT_LENGTH=4",
        "HTTP_X_OWN=1",
        "REMOTE_ADDR=127.0.0.1",
        "SERVER_PROTOCOL=HTTP/1.1",
        "COLOUR=green",
    ] {
        has_line(&seen, line);
    }
    assert!(!seen.contains("HTTP_PROXY"), "{seen}");
    assert_eq!(BENCH.text("/cgi/hello"), "hello\n");
    let teapot = BENCH.get("/cgi/status");
    assert_eq!(
        (teapot.status, teapot.body.as_str()),
        (418, "short and stout\n")
    );
    let plain = BENCH.get("/cgi/no-headers");
    assert!(
        plain
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    assert!(plain.body.starts_with("no header block here\n"));
    let location = BENCH.get("/cgi/location");
    assert_eq!(location.status, 302);
    assert_eq!(
        location.header("location"),
        Some("https://example.com/elsewhere")
    );
    assert_eq!(BENCH.get("/cgi/crlf").header("x-crlf"), Some("yes"));
}

fn commands_come_from_c_and_from_text() {
    BENCH.function("c", "fixtures/cgi-c.wasm", FunctionOptions::default());
    let echoed = BENCH.request("POST", "/c/echo?x", "Content-Type: text/y\r\n", "from C");
    assert_eq!(echoed.status, 200);
    assert!(
        echoed
            .body
            .starts_with("POST /echo?x\nCONTENT_TYPE text/y\nCONTENT_LENGTH 6\n"),
        "{}",
        echoed.body
    );
    assert!(echoed.body.ends_with("\n\nfrom C"), "{}", echoed.body);
    assert_eq!(BENCH.get("/c/nothere").status, 404);

    let text = BENCH.function("text", "fixtures/wat/hello.wat", FunctionOptions::default());
    assert_eq!(text.function.kind, FunctionKind::CgiModule);
    assert_eq!(BENCH.get("/text/").status, 200);
}

/// `init-draws` under a freeze policy: what two requests say.
fn draws(name: &str, policy: FreezePolicy) -> (faasw::Deployed, [String; 2]) {
    let options = FunctionOptions::default().freeze(policy);
    let deployed = BENCH.function(name, "fixtures/init-draws.wasm", options);
    let path = format!("/{name}/");
    (deployed, [BENCH.text(&path), BENCH.text(&path)])
}

fn entropy_drawn_by_the_initialisation_is_not_shared_unless_asked() {
    let (auto, [one, two]) = draws("draws-auto", FreezePolicy::Auto);
    assert!(!auto.function.frozen_after_init);
    let notice = auto.notice.unwrap();
    assert!(
        notice.contains("random") && notice.contains("--freeze after-init"),
        "{notice}"
    );
    assert_ne!(value(&one, "init-random"), value(&two, "init-random"));

    let (before, [one, two]) = draws("draws-before", FreezePolicy::BeforeInit);
    assert!(!before.function.frozen_after_init);
    assert_ne!(value(&one, "init-random"), value(&two, "init-random"));

    let (after, [one, two]) = draws("draws-after", FreezePolicy::AfterInit);
    assert!(after.function.frozen_after_init && after.notice.is_some());
    assert_eq!(value(&one, "init-random"), value(&two, "init-random"));
    assert_ne!(value(&one, "now-random"), value(&two, "now-random"));
}

fn output_becomes_the_functions_log_line_by_line() {
    BENCH.function(
        "logs",
        "fixtures/http-probe.wasm",
        FunctionOptions::default(),
    );
    BENCH.text("/logs/log");
    let last = |lines: &[LogLine]| {
        let lasts = lines
            .iter()
            .filter(|line| line.text.contains(" last, no newline"));
        lasts.count() == 2
    };
    let lines = BENCH.log_once("logs", last);
    let at = |text: &str| lines.iter().find(|line| line.text.starts_with(text));
    for (text, stream) in [
        ("stdout first", LogStream::Out),
        ("stderr first", LogStream::Err),
        ("stdout last, no newline", LogStream::Out),
        ("stderr last, no newline", LogStream::Err),
    ] {
        let line = at(text).unwrap_or_else(|| panic!("no {text} in {lines:?}"));
        assert_eq!(line.stream, stream);
        assert!(line.instance > 0);
    }
    assert!(lines.iter().any(|line| line.text == "x".repeat(10_000)));
    let bytes = at("bytes ").unwrap();
    assert!(bytes.text.ends_with("\\u{1b}[31m red"), "{bytes:?}");

    BENCH.text("/logs/log-flood/600");
    BENCH.log_once("logs", |lines| {
        let flooded = lines
            .iter()
            .filter(|line| line.text.starts_with("flood line "));
        flooded.count() == 600
    });
}

fn server_timing_tells_the_stages() {
    BENCH.probe();
    let asking = "X-Faasw-Timing: 1\r\nTE: trailers\r\n";
    let answer = BENCH.request("GET", "/probe/sleep/30", asking, "");
    // Behind the body where the end was too long in coming to wait for it.
    let behind = answer
        .trailers
        .iter()
        .find(|(name, _)| name == "server-timing");
    let behind = behind.map(|(_, value)| value.as_str());
    let timing = answer.header("server-timing").or(behind).unwrap();
    let (stages, served) = timing.rsplit_once(", served;desc=").unwrap();
    let kinds = ["parked", "ready", "shell", "ancestor", "made"];
    assert!(kinds.contains(&served.trim_matches('"')), "{timing}");
    let stages: Vec<(&str, f64)> = stages
        .split(", ")
        .map(|stage| {
            let (name, duration) = stage.split_once(";dur=").unwrap();
            let (_, decimals) = duration.split_once('.').unwrap();
            assert_eq!(decimals.len(), 3, "{timing}");
            (name, duration.parse().unwrap())
        })
        .collect();
    let names: Vec<_> = stages.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["queue", "fork", "init", "exec", "run"]);
    assert!(stages[3].1 >= 30.0, "{timing}");
    let was_forked = served.contains("shell") || served.contains("made");
    assert!(
        stages[1].1 > 0.0 || behind.is_some() || !was_forked,
        "{timing}"
    );
}

/// Deployed, called, timed out and removed as in cells, and gone with the node.
fn a_node_with_its_microvms_in_process_serves_the_same() {
    let threads = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        names
            .filter(|name| matches!(name, Ok(name) if name.trim() == "faasw-shell"))
            .count()
    };
    // Other nodes of this program keep to their cells.
    assert_eq!(threads(), 0);
    let builder = Node::builder().confinement(Confinement::InProcess);
    let bench = Bench::start(builder, limits());
    bench.probe();
    for _ in 0..3 {
        assert_eq!(bench.text("/probe/count").trim(), "1");
    }
    assert!(threads() > 0);
    let options = FunctionOptions::default().first_byte(time_limit(1));
    bench.function("loop", "fixtures/wat/loop.wasm", options);
    assert_eq!(bench.get("/loop/").status, 504);
    assert_eq!(bench.text("/probe/count").trim(), "1");
    bench.end();
    assert_eq!(threads(), 0);
}

fn main() {
    let tests = tests![
        the_example_answers,
        a_request_arrives_whole_and_comes_back_whole,
        responses_keep_status_and_fields,
        each_request_meets_a_fresh_machine,
        bodies_of_every_size_arrive,
        a_stream_is_seen_chunk_by_chunk,
        trailers_pass_both_ways,
        large_bodies_pass_through_constant_memory,
        head_has_no_body,
        random_numbers_never_agree_after_the_fork,
        clocks_are_real_and_go_on,
        the_environment_is_the_functions_own,
        there_is_no_way_out,
        functions_compute_what_they_should,
        functions_cannot_forge_the_framing,
        commands_answer_in_cgi_style,
        commands_come_from_c_and_from_text,
        entropy_drawn_by_the_initialisation_is_not_shared_unless_asked,
        output_becomes_the_functions_log_line_by_line,
        server_timing_tells_the_stages,
        a_node_with_its_microvms_in_process_serves_the_same,
    ];
    e2e::main(tests);
}
