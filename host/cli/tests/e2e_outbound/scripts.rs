//! Outbound calls of scripts in JavaScript.

use std::net::SocketAddr;

use faasw::{FunctionOptions, Node, OutboundOptions};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use super::{
    REACHING, RUNTIME,
    e2e::{Bench, bundle, limits},
    granted, until, upstream,
};

/// Deploys a script that may send requests to these origins.
fn script(bench: &Bench, name: &str, grants: &[&str], text: &str) {
    let deployed = bench.deploy(name, &bundle(&[("handler.js", text)]), granted(grants));
    assert_eq!(deployed.notice, None);
}

/// Answers each request with JSON that has its line, its host and its body, or with a redirect to
/// the URL behind `/to?`.
async fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut lines, mut length, mut is_chunked) = (Vec::new(), 0, false);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_owned();
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            is_chunked |= lower == "transfer-encoding: chunked";
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        while is_chunked {
            let mut size = String::new();
            stream.read_line(&mut size).await?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).await?;
            body.extend_from_slice(&chunk[..size]);
            is_chunked = size > 0;
        }
        let target = lines[0].split(' ').nth(1).unwrap();
        let answer = match target.strip_prefix("/to?") {
            Some(location) => {
                format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")
            }
            None => {
                let told = serde_json::json!({
                    "lines": lines,
                    "body": String::from_utf8_lossy(&body),
                })
                .to_string();
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{told}",
                    told.len()
                )
            }
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}

fn telling() -> SocketAddr {
    RUNTIME.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        address
    })
}

pub fn a_script_calls_a_server() {
    let at = telling();
    let text = format!(
        "export default {{ async fetch(request) {{
            const path = new URL(request.url).pathname;
            if (path === '/get') {{
                const answer = await (await fetch('http://{at}/a?b', {{ headers: {{ 'x-a': 'b' }} }})).json();
                return Response.json([answer.lines[0], answer.lines.includes('x-a: b')]);
            }}
            if (path === '/post') return fetch('http://{at}/', request);
            const answers = await Promise.all(Array.from({{ length: 16 }},
                async (_, nth) => (await (await fetch('http://{at}/' + nth)).json()).lines[0]));
            return Response.json(answers);
        }} }}"
    );
    script(&REACHING, "script", &["http://127.0.0.1:*"], &text);
    for _ in 0..3 {
        assert_eq!(REACHING.text("/script/get"), "[\"GET /a?b HTTP/1.1\",true]");
    }
    let body = "gr\u{fc}n".repeat(100_000);
    let answer = REACHING.request("POST", "/script/post", "", &body);
    let told: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told["lines"][0], "POST / HTTP/1.1");
    assert!(told["body"] == body.as_str());
    let expected: Vec<_> = (0..16).map(|nth| format!("GET /{nth} HTTP/1.1")).collect();
    let told: Vec<String> = serde_json::from_str(&REACHING.text("/script/all")).unwrap();
    assert_eq!(told, expected);
}

pub fn each_hop_of_a_redirect_needs_its_grant() {
    let (first, second) = (telling(), telling());
    let text = format!(
        "export default {{ async fetch(request) {{
            const to = new URL(request.url).searchParams.get('to');
            try {{
                const response = await fetch('http://{first}/to?' + to, {{ headers: {{ authorization: 'k' }} }});
                const answer = await response.json();
                const hasKey = answer.lines.some((line) => line.startsWith('authorization'));
                return Response.json([response.redirected, new URL(response.url).host, hasKey]);
            }} catch (error) {{ return new Response(error.cause.code + ' ' + error.message) }}
        }} }}"
    );
    let grant = format!("http://{first}");
    script(&REACHING, "hops", &[&grant], &text);
    let told = REACHING.text(&format!("/hops/?to=http://{first}/x"));
    assert_eq!(told, format!("[true,\"{first}\",true]"));
    let told = REACHING.text(&format!("/hops/?to=http://{second}/x"));
    let wanted = format!("HTTP-request-denied cannot fetch http://{second}: ");
    assert!(told.starts_with(&wanted), "{told}");
    let log = REACHING.log("hops").join("\n");
    assert!(
        log.contains(&format!("--allow-outbound http://{second}")),
        "{log}"
    );
    script(&REACHING, "hops", &["http://127.0.0.1:*"], &text);
    let told = REACHING.text(&format!("/hops/?to=http://{second}/x"));
    assert_eq!(told, format!("[true,\"{second}\",false]"));
}

pub fn a_script_aborts_its_calls() {
    let upstream = upstream();
    let text = format!(
        "export default {{ async fetch(request) {{
            const path = new URL(request.url).pathname;
            try {{
                const response = await fetch('http://{}' + path, {{ signal: AbortSignal.timeout(200) }});
                return new Response(await response.text());
            }} catch (error) {{ return new Response(error.name) }}
        }} }}",
        upstream.address
    );
    script(&REACHING, "aborts", &["http://127.0.0.1:*"], &text);
    for path in ["/aborts/held", "/aborts/begun"] {
        assert_eq!(REACHING.text(path), "TimeoutError");
    }
    until("both are given up", || upstream.held() == (2, 2));
    assert!(REACHING.text("/aborts/other").starts_with("GET /other of "));
}

pub fn scripts_call_functions_of_the_node() {
    let bench = Bench::start(Node::builder(), limits());
    bench.probe();
    script(
        &bench,
        "caller",
        &["http://self"],
        "export default { fetch: (request) => fetch('http://self/probe/hello') }",
    );
    assert_eq!(bench.text("/caller/"), "hello\n");
    let denied = "export default { fetch: () => fetch('http://self/probe/hello').catch((error) => new Response(error.cause.code)) }";
    let options = FunctionOptions::default();
    bench.deploy("denied", &bundle(&[("handler.js", denied)]), options);
    assert_eq!(bench.text("/denied/"), "HTTP-request-denied");
    bench.end();
}

/// A private address is opened by the operator only; the log of the function says how.
pub fn a_script_learns_in_its_log_what_is_closed() {
    let at = telling();
    let closed = Bench::start(
        Node::builder().outbound(OutboundOptions::default()),
        limits(),
    );
    let text = format!(
        "export default {{ fetch: () => fetch('http://{at}/').catch((error) => new Response(error.cause.code)) }}"
    );
    script(&closed, "asks", &["http://127.0.0.1:*"], &text);
    assert_eq!(closed.text("/asks/"), "destination-IP-prohibited");
    let log = closed.log("asks").join("\n");
    assert!(log.contains("--allow-private 127.0.0.1"), "{log}");
    closed.end();
}

/// The response is complete while a call is still open. Only `ctx.waitUntil` keeps it.
pub fn a_call_ends_with_the_request_of_a_script() {
    let upstream = upstream();
    let text = format!(
        "export default {{ fetch(request, env, ctx) {{
            const call = fetch('http://{}/held').then((response) => response.text()).then(console.log);
            if (request.url.endsWith('/keep')) ctx.waitUntil(call); else call.catch(() => {{}});
            return new Response('answered');
        }} }}",
        upstream.address
    );
    script(&REACHING, "leaves", &["http://127.0.0.1:*"], &text);
    assert_eq!(REACHING.text("/leaves/"), "answered");
    until("it is given up", || {
        let (held, given_up) = upstream.held();
        held == given_up
    });
    let held = upstream.held().0;
    assert_eq!(REACHING.text("/leaves/keep"), "answered");
    until("it is held", || upstream.held().0 > held);
    upstream.release();
    let lines = REACHING.log_once("leaves", |lines| {
        lines.iter().any(|line| line.text.contains("GET /held"))
    });
    assert!(!lines.is_empty());
}
