//! Outbound calls of scripts in Python, natively: the standard library's clients, those of PyPI,
//! and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::LazyLock;

use faasw_abi::channel::CALLS;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use faasw_abi::wire::{Pair, ResponseHead};
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall};
use support::scripts::{PYTHON, asked};
use support::{bytes, fixture, values};

/// The HTTP clients from PyPI that are stored for tests, by the paths of their files.
static PACKAGES: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let packed = fixture("tests/fixtures/scripts/client-packages.tar.zst");
    let mut unpacked = Vec::new();
    let mut reader = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    reader.read_to_end(&mut unpacked).unwrap();
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(unpacked.as_slice());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path.trim_start_matches("./").to_owned(), content);
        }
    }
    files
});

const REQUESTS: &[&str] = &[
    "requests",
    "urllib3",
    "certifi",
    "idna",
    "charset_normalizer",
];
const HTTPX: &[&str] = &[
    "httpx",
    "httpcore",
    "h11",
    "certifi",
    "idna",
    "anyio",
    "typing_extensions",
];

const BOTO3: &[&str] = &[
    "boto3",
    "botocore",
    "s3transfer",
    "jmespath",
    "dateutil",
    "six",
    "urllib3",
    "certifi",
];

/// Returns an answer with these fields and pieces.
fn answer(status: u16, fields: &[(&str, &str)], pieces: &[&str]) -> MemoryAnswer {
    let headers: Vec<Pair> = fields
        .iter()
        .map(|(name, value)| (bytes(name), bytes(value)))
        .collect();
    MemoryAnswer {
        head: Answer::Response(ResponseHead { status, headers }).encode(),
        pieces: pieces.iter().map(|piece| bytes(piece)).collect(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

/// Returns an answer with JSON, whose length is declared.
fn json(text: &str) -> MemoryAnswer {
    let length = text.len().to_string();
    let fields = [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ];
    answer(200, &fields, &[text])
}

fn failed(code: FailureCode) -> MemoryAnswer {
    MemoryAnswer {
        head: Answer::Failed(Failure::new(code)).encode(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

/// The results of a request to a script.
struct Called {
    text: String,
    log: String,
    asked: Vec<MemoryCall>,
}

/// Returns the results of a request to the script, with these packages, while servers send
/// `answers`. Checks that no call remains open.
#[track_caller]
fn called(script: &str, packages: &[&str], answers: Vec<MemoryAnswer>) -> Called {
    called_with(script, packages, answers, 112 << 10)
}

#[track_caller]
fn called_with(script: &str, packages: &[&str], answers: Vec<MemoryAnswer>, ring: usize) -> Called {
    let mut files: Vec<(&str, &[u8])> = vec![("a.py", script.as_bytes())];
    for (path, content) in PACKAGES.iter() {
        let is_of = |package: &&str| {
            let rest = path.strip_prefix(package);
            rest.is_some_and(|rest| rest.starts_with(['/', '.']))
        };
        if packages.iter().any(is_of) {
            files.push((path, content));
        }
    }
    let call = asked("/");
    let mut ready = PYTHON
        .init(&files, &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let calls = &mut ready.platform_mut().calls;
    (calls.open, calls.ring, calls.answers) = (CALLS, ring, answers.into());
    let result = ready.handle(call.request);
    let log = String::from_utf8(ready.platform().logged(LogStream::Err)).unwrap();
    if let Err(failure) = result {
        panic!("{}\n{log}", failure.report);
    }
    let text = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    let asked = std::mem::take(&mut ready.platform_mut().calls.asked);
    assert!(asked.iter().all(|call| call.is_over), "{asked:?}");
    Called { text, log, asked }
}

/// Returns method, URL and body of a request.
fn line(call: &MemoryCall) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let head = &call.head;
    let url = format!(
        "{} {}://{}{}",
        text(&head.method),
        text(&head.scheme),
        text(&head.authority),
        text(&head.path_and_query)
    );
    format!("{url} {}", text(&call.body)).trim_end().to_owned()
}

fn lines(asked: &[MemoryCall]) -> Vec<String> {
    asked.iter().map(line).collect()
}

#[test]
fn http_client_sends_requests_and_reads_responses() {
    let script = r#"
import http.client, json
def handler(request):
    said = []
    c = http.client.HTTPConnection("a.example", 81)
    c.request("GET", "/b?c", headers={"X-A": "1"})
    r = c.getresponse()
    said.append((r.status, r.reason, r.getheader("x-b"), r.read().decode()))
    c.request("POST", "/p", body=b"abc")
    said.append(c.getresponse().read().decode())
    c.request("PUT", "/q", body=iter([b"de", b"", b"f" * 20]), encode_chunked=True,
              headers={"Transfer-Encoding": "chunked"})
    said.append(c.getresponse().read().decode())
    c.request("HEAD", "/h")
    r = c.getresponse()
    said.append((r.getheader("content-length"), r.read().decode()))
    c.request("DELETE", "/d")
    r = c.getresponse()
    said.append((r.status, r.read().decode()))
    c.close()
    c = http.client.HTTPSConnection("b.example", timeout=3)
    c.request("PROPFIND", "/")
    said.append(c.getresponse().read().decode())
    return json.dumps(said)
"#;
    let answers = vec![
        answer(
            404,
            &[("X-B", "2"), ("content-length", "7")],
            &["one ", "two"],
        ),
        answer(200, &[], &["chunked ", "body"]),
        json("3"),
        answer(200, &[("content-length", "77")], &[]),
        answer(204, &[], &[]),
        json("6"),
    ];
    let called = called(script, &[], answers);
    assert_eq!(
        called.text,
        r#"[[404, "Not Found", "2", "one two"], "chunked body", "3", ["77", ""], [204, ""], "6"]"#
    );
    assert_eq!(
        lines(&called.asked),
        [
            "GET http://a.example:81/b?c",
            "POST http://a.example:81/p abc",
            "PUT http://a.example:81/q deffffffffffffffffffff",
            "HEAD http://a.example:81/h",
            "DELETE http://a.example:81/d",
            "PROPFIND https://b.example/",
        ]
    );
    let head = &called.asked[0].head;
    assert_eq!(values(&head.headers, "x-a"), [b"1"]);
    assert!(values(&head.headers, "host").is_empty());
    assert!(called.asked[0].is_whole);
    assert_eq!(called.asked[5].head.timeouts.connect, 3_000_000_000);
    assert_eq!(called.asked[2].tail, Some(Tail::Trailers(Vec::new())));
}

#[test]
fn urllib_follows_redirects_and_reports_statuses() {
    let script = r#"
import urllib.error, urllib.request
def handler(request):
    with urllib.request.urlopen("https://a.example/from") as r:
        said = f"{r.url} {r.read().decode()} "
    try:
        urllib.request.urlopen(urllib.request.Request("http://a.example/x", b"d=1"))
    except urllib.error.HTTPError as e:
        said += f"{e.code} {e.read().decode()}"
    return said
"#;
    let answers = vec![
        answer(302, &[("location", "/to"), ("content-length", "0")], &[]),
        json("1"),
        answer(418, &[], &["tea"]),
    ];
    let called = called(script, &[], answers);
    assert_eq!(called.text, "https://a.example/to 1 418 tea");
    assert_eq!(
        lines(&called.asked),
        [
            "GET https://a.example/from",
            "GET https://a.example/to",
            "POST http://a.example/x d=1",
        ]
    );
}

#[test]
fn failures_name_their_reason() {
    let script = r#"
import http.client, json, ssl, socket
def handler(request):
    said = []
    for n in range(8):
        c = http.client.HTTPSConnection("a.example")
        try:
            c.request("GET", "/")
            said.append(c.getresponse().read().decode())
        except OSError as e:
            said.append(f"{type(e).__name__}: {e}")
    return "\n".join(said)
"#;
    let mut cut = answer(200, &[("content-length", "9")], &["abc"]);
    cut.tail = Some(Tail::Failed(Failure::new(FailureCode::ConnectionTerminated)).encode());
    let answers = vec![
        failed(FailureCode::HttpRequestDenied),
        failed(FailureCode::TlsCertificateError),
        failed(FailureCode::DestinationIpProhibited),
        failed(FailureCode::DnsError),
        failed(FailureCode::HttpResponseTimeout),
        failed(FailureCode::HttpRequestHeaderSectionSize),
        cut,
        MemoryAnswer {
            head: Answer::Failed(Failure::with_text(FailureCode::InternalError, "no {x} {"))
                .encode(),
            tail: Some(Vec::new()),
            ..MemoryAnswer::default()
        },
    ];
    let called = called(script, &[], answers);
    let told: Vec<&str> = called.text.lines().collect();
    let wanted = [
        (
            "ConnectionRefusedError: ",
            "(HTTP-request-denied): no grant allows it: deploy with \
                                      --allow-outbound https://a.example",
        ),
        ("SSLCertVerificationError: ", "--egress-ca"),
        ("ConnectionRefusedError: ", "--allow-private"),
        ("gaierror: ", "(DNS-error)"),
        ("TimeoutError: ", "(HTTP-response-timeout)"),
        ("ConnectionError: ", "(HTTP-request-header-section-size)"),
        ("ConnectionResetError: ", "(connection-terminated)"),
        ("ConnectionError: ", "(internal-error): no {x} {"),
    ];
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    for (told, (kind, reason)) in told.iter().zip(wanted) {
        assert!(told.starts_with(kind) && told.contains(reason), "{told}");
    }
}

/// A client reads the length that the engine reads, or none.
#[test]
fn a_response_has_at_most_one_length() {
    let script = r#"
import http.client
def handler(request):
    told = []
    for n in range(3):
        c = http.client.HTTPConnection("a.example")
        c.request("GET", "/")
        r = c.getresponse()
        told.append((r.getheader("content-length"), r.read()))
    return repr(told)
"#;
    let lengths = [("content-length", "2"), ("content-length", "3")];
    let answers = vec![
        answer(200, &[("content-length", "2, 2")], &["ab"]),
        answer(200, &[lengths[0], lengths[0]], &["ab"]),
        answer(200, &lengths, &["ab"]),
    ];
    assert_eq!(
        called(script, &[], answers).text,
        "[('2', b'ab'), ('2', b'ab'), (None, b'ab')]"
    );
}

/// The client reads the response and the end of the connection, not an error of its upload.
#[test]
fn a_response_may_come_before_the_request_has_ended() {
    let script = r#"
import asyncio
class Protocol(asyncio.Protocol):
    got = b""
    def connection_made(self, transport):
        self.transport = transport
        self.lost = asyncio.get_running_loop().create_future()
        transport.write(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\nabcd")
    def data_received(self, data):
        self.got += data
        if self.got.endswith(b"large"):
            self.transport.write(b"efghi")
    def connection_lost(self, error):
        self.lost.set_result(error)
async def handler(request):
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(Protocol, "a.example", 80)
    return repr((await protocol.lost, protocol.got[-5:]))
"#;
    let answers = vec![answer(413, &[("content-length", "5")], &["large"])];
    assert_eq!(called(script, &[], answers).text, "(None, b'large')");
}

#[test]
fn sockets_that_are_not_closed_are_freed() {
    let script = r#"
import socket
def handler(request):
    for n in range(3):
        s = socket.create_connection(("a.example", 80))
        s.fileno()
    del s
    return str(len(socket._by_number))
"#;
    assert_eq!(called(script, &[], Vec::new()).text, "0");
}

#[test]
fn a_protocol_that_fails_loses_its_connection() {
    let script = r#"
import asyncio
class Protocol(asyncio.Protocol):
    def connection_made(self, transport):
        self.lost = asyncio.get_running_loop().create_future()
        transport.write(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    def data_received(self, data):
        raise ValueError("no parser")
    def connection_lost(self, error):
        self.lost.set_result(error)
async def handler(request):
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(Protocol, "a.example", 80)
    return repr(await protocol.lost)
"#;
    let called = called(script, &[], vec![json("1")]);
    assert_eq!(called.text, "ValueError('no parser')");
}

/// Without a grant, the guest has no channel for calls.
#[test]
fn without_channels_the_missing_grant_is_named() {
    let script = "
import urllib.request
def handler(request):
    try:
        urllib.request.urlopen('http://a.example:81/')
    except OSError as e:
        return str(e)
";
    let said = PYTHON.answer(&[("a.py", script.as_bytes())], asked("/"));
    assert!(
        said.contains("--allow-outbound http://a.example:81"),
        "{said}"
    );
}

#[test]
fn calls_at_the_top_level_are_refused_with_their_place() {
    for (text, line) in [
        (
            "import urllib.request\nurllib.request.urlopen('https://a.example/')",
            2,
        ),
        (
            "import asyncio\n\nasync def f():\n  await asyncio.open_connection('a.example', 443)\n\
          asyncio.run(f())",
            4,
        ),
    ] {
        let report = PYTHON.refused(&[("a.py", text.as_bytes())]);
        let wanted =
            format!("a.py:{line}: RuntimeError: a call to a.example:443 is only available");
        assert!(report.starts_with(&wanted), "{report}");
    }
}

#[test]
fn what_is_not_http_is_refused() {
    let script = r#"
import asyncio, smtplib, socket, ssl
async def server():
    await asyncio.start_server(lambda r, w: None, "127.0.0.1", 80)
def tries():
    def smtp(): smtplib.SMTP("mail.example")
    def redis(): socket.create_connection(("r", 6379)).sendall(b"*1\r\n$4\r\nPING\r\n")
    def websocket(): send(b"GET / HTTP/1.1\r\nHost: r\r\nUpgrade: websocket\r\n\r\n")
    def other_host(): send(b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")
    def proxy(): send(b"GET http://other/ HTTP/1.1\r\nHost: other\r\n\r\n")
    def two(): send(b"GET / HTTP/1.1\r\nHost: r\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: r\r\n\r\n")
    def long(): send(b"GET / HTTP/1.1\r\nX: " + b"x" * 70000)
    def lengths():
        send(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n"
             b"Transfer-Encoding: chunked\r\n\r\n")
    def folded(): send(b"GET / HTTP/1.1\r\nX: 1\r\n Y: 2\r\n\r\n")
    def chunk(): send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n")
    def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    def unix(): socket.socket(socket.AF_UNIX)
    def listen(): socket.create_server(("", 80))
    def serve(): asyncio.run(server())
    def client_certificate(): ssl.create_default_context().load_cert_chain("c.pem")
    return list(locals().values())
def send(data):
    with socket.create_connection(("r", 80)) as s:
        s.sendall(data)
        s.recv(1)
def handler(request):
    said = []
    for function in tries():
        try:
            function()
            said.append(f"{function.__name__}: done")
        except OSError as e:
            said.append(f"{function.__name__}: {e}")
    return "\n".join(said)
"#;
    let called = called(script, &[], vec![]);
    let only_http = "only HTTP/1.1 requests, which the node sends";
    let wanted = [
        ("smtp", only_http),
        ("redis", only_http),
        ("websocket", only_http),
        ("other_host", "names another server than r"),
        ("proxy", "unset HTTP_PROXY"),
        ("two", "before the response to the last one"),
        ("long", "more than 65536 bytes"),
        ("lengths", "content-length and transfer-encoding"),
        ("folded", "is no header field"),
        ("chunk", "no size of a chunk"),
        ("udp", only_http),
        ("unix", only_http),
        ("listen", only_http),
        ("serve", only_http),
        ("client_certificate", "--egress-ca"),
    ];
    assert_eq!(called.text.lines().count(), wanted.len(), "{}", called.text);
    for (told, (name, reason)) in called.text.lines().zip(wanted) {
        assert!(told.starts_with(name) && told.contains(reason), "{told}");
    }
    assert!(called.asked.len() <= 2, "{:?}", called.asked);
    assert!(
        called
            .asked
            .iter()
            .all(|call| call.head.path_and_query == b"/")
    );
}

#[test]
fn bodies_stream_both_ways_with_little_space() {
    let script = r#"
import asyncio, http.client
def handler(request):
    c = http.client.HTTPConnection("a.example")
    c.request("POST", "/sync", body=b"0123456789" * 30000)
    r = c.getresponse()
    total = 0
    while piece := r.read(100):
        total += len(piece)
    asyncio.run(also())
    return str(total)
async def also():
    reader, writer = await asyncio.open_connection("a.example", 80)
    writer.write(b"POST /async HTTP/1.1\r\nHost: a.example\r\nContent-Length: 300000\r\n\r\n")
    for _ in range(30):
        writer.write(b"0123456789" * 1000)
        await writer.drain()
    await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(1) == b"3"
    writer.close()
"#;
    let pieces = ["0123456789"; 50];
    let answers = vec![answer(200, &[], &pieces), json("3")];
    let called = called_with(script, &[], answers, 1000);
    assert_eq!(called.text, "500");
    assert_eq!(called.asked[0].body.len(), 300_000);
    // The second answer is complete at once, which ends the sending.
    assert!(!called.asked[1].body.is_empty());
    for call in &called.asked {
        assert!(b"0123456789".repeat(30_000).starts_with(&call.body));
    }
    assert_eq!(called.asked[0].tail, Some(Tail::Trailers(Vec::new())));
}

#[test]
fn timeouts_end_calls() {
    let script = r#"
import asyncio, socket, urllib.request
def handler(request):
    said = []
    try:
        urllib.request.urlopen("http://a.example/", timeout=0.002)
    except TimeoutError as e:
        said.append(str(e))
    try:
        asyncio.run(asyncio.wait_for(late(), 0.002))
    except TimeoutError:
        said.append("late")
    return " ".join(said)
async def late():
    reader, writer = await asyncio.open_connection("b.example", 80)
    writer.write(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")
    await reader.read(1)
"#;
    let called = called(script, &[], vec![]);
    assert_eq!(called.text, "timed out late");
    assert_eq!(called.asked.len(), 2);
}

/// A call that a script leaves open ends with the request.
#[test]
fn open_calls_do_not_affect_the_answer() {
    let script = r#"
import http.client, urllib.request
kept = []
def handler(request):
    kept.append(urllib.request.urlopen("http://a.example/endless"))
    c = http.client.HTTPConnection("a.example")
    c.putrequest("POST", "/unfinished")
    c.putheader("Content-Length", "10")
    c.endheaders(b"abc")
    kept.append(c)
    return "x"
"#;
    let mut endless = answer(200, &[], &["abc"]);
    endless.tail = None;
    let called = called(script, &[], vec![endless]);
    assert_eq!(called.text, "x");
}

#[test]
fn background_tasks_may_call() {
    let script = r#"
import asyncio
async def late():
    reader, writer = await asyncio.open_connection("a.example", 443, ssl=True)
    writer.write(b"GET /late HTTP/1.1\r\nHost: a.example\r\n\r\n")
    print(await reader.readuntil(b"}"))
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x"})
        asyncio.create_task(late())
"#;
    let called = called(script, &[], vec![json("{}")]);
    assert_eq!(called.text, "x");
    assert_eq!(lines(&called.asked), ["GET https://a.example/late"]);
}

const URLLIB3: &str = r#"
import PATH
import urllib3
pool = urllib3.PoolManager()
def handler(request):
    said = [urllib3.__version__[0]]
    r = pool.request("GET", "https://a.example/1")
    said.append(r.data.decode())
    r = pool.request("POST", "https://a.example/2", body=b"abc", headers={"X-A": "b"})
    said.append(r.data.decode())
    r = pool.request("GET", "http://b.example:81/3", preload_content=False)
    said.append(r.read(2).decode())
    r.release_conn()
    try:
        pool.request("GET", "https://a.example/4", retries=False)
    except urllib3.exceptions.HTTPError as e:
        said.append(str(e)[:100])
    return " ".join(said)
"#;

#[test]
fn urllib3_works_in_both_versions() {
    for (path, packages, version) in [
        ("sys", &["urllib3"], "2"),
        (
            "sys; sys.path.insert(0, '/app/urllib3-1')",
            &["urllib3-1"],
            "1",
        ),
    ] {
        let answers = vec![
            json("1"),
            answer(200, &[], &["two", " and"]),
            answer(200, &[], &["three"]),
            failed(FailureCode::TlsCertificateError),
        ];
        let called = called(&URLLIB3.replace("PATH", path), packages, answers);
        let wanted = format!("{version} 1 two and th ");
        assert!(called.text.starts_with(&wanted), "{}", called.text);
        assert!(
            called.text.contains("TLS-certificate-error"),
            "{}",
            called.text
        );
        // The clock of these tests begins in 1970, which urllib3 2 reports.
        let reported = |line: &str| line.contains("System time") || line.contains("warnings.warn(");
        assert!(called.log.lines().all(reported), "{}", called.log);
        assert_eq!(
            lines(&called.asked),
            [
                "GET https://a.example/1",
                "POST https://a.example/2 abc",
                "GET http://b.example:81/3",
                "GET https://a.example/4",
            ]
        );
    }
}

#[test]
fn requests_works() {
    let script = r#"
import requests
session = requests.Session()
def handler(request):
    said = [session.get("https://a.example/1", params={"q": "ü"}).json()["a"]]
    r = session.post("https://a.example/2", json={"b": 1})
    said.append(f"{r.status_code} {r.url} {r.history[0].status_code} {r.cookies.get('c', '-')}")
    said.append(session.post("http://a.example/3", data=(p for p in [b"x", b"yz"])).text)
    with session.get("http://a.example/4", stream=True) as r:
        said.append(b"|".join(r.iter_lines()).decode())
    said.append(requests.get("http://a.example/5", auth=("u", "p"), timeout=(1, 2)).text)
    try:
        session.get("https://a.example/6")
    except requests.exceptions.SSLError as e:
        said.append("--egress-ca" in str(e))
    try:
        session.get("http://other.example/7")
    except requests.ConnectionError as e:
        said.append("--allow-outbound http://other.example" in str(e))
    said.append(session.get("https://a.example/8", verify=False).text)
    return " ".join(map(str, said))
"#;
    let answers = vec![
        json(r#"{"a": "one"}"#),
        answer(
            303,
            &[
                ("location", "https://b.example/2b"),
                ("content-length", "0"),
            ],
            &[],
        ),
        json("2"),
        json("3"),
        answer(200, &[], &["a\nb", "c\nd"]),
        json("5"),
        failed(FailureCode::TlsCertificateError),
        failed(FailureCode::HttpRequestDenied),
        json("8"),
    ];
    let called = called(script, REQUESTS, answers);
    assert_eq!(
        called.text,
        "one 200 https://b.example/2b 303 - 3 a|bc|d 5 True True 8"
    );
    assert_eq!(
        lines(&called.asked),
        [
            "GET https://a.example/1?q=%C3%BC",
            "POST https://a.example/2 {\"b\": 1}",
            "GET https://b.example/2b",
            "POST http://a.example/3 xyz",
            "GET http://a.example/4",
            "GET http://a.example/5",
            "GET https://a.example/6",
            "GET http://other.example/7",
            "GET https://a.example/8",
        ]
    );
    let timeouts = &called.asked[5].head.timeouts;
    assert_eq!(timeouts.connect, 1_000_000_000);
    assert!(
        called
            .log
            .contains("switching verification off has no effect"),
        "{}",
        called.log
    );
}

#[test]
fn httpx_works_with_and_without_asyncio() {
    let script = r#"
import asyncio, httpx
client = httpx.Client()
async def many():
    async with httpx.AsyncClient() as client:
        async def get(n):
            return (await client.get(f"https://a.example/{n}")).json()
        said = await asyncio.gather(*map(get, range(3)))
        async def pieces():
            yield b"ab"
            await asyncio.sleep(0)
            yield b"c"
        r = await client.post("http://a.example/p", content=pieces())
        said.append(r.text)
        try:
            await client.get("http://a.example/late", timeout=0.005)
        except httpx.ReadTimeout:
            said.append("late")
        return said
def handler(request):
    said = [client.get("https://a.example/s").json()]
    with client.stream("POST", "http://a.example/t", content=b"abc") as r:
        said += list(r.iter_text())
    try:
        client.get("https://a.example/f")
    except httpx.ReadError as e:
        said.append("no grant" in str(e))
    said += asyncio.run(many())
    return str(said)
"#;
    let mut first = json("10");
    first.delay = 5;
    let answers = vec![
        json("1"),
        answer(200, &[], &["one", "two"]),
        failed(FailureCode::HttpRequestDenied),
        first,
        json("11"),
        json("12"),
        json("4"),
    ];
    let called = called(script, HTTPX, answers);
    assert_eq!(
        called.text,
        "[1, 'one', 'two', True, 10, 11, 12, '4', 'late']"
    );
    let told = lines(&called.asked);
    assert_eq!(told[0], "GET https://a.example/s");
    assert_eq!(told[1], "POST http://a.example/t abc");
    assert_eq!(
        told[3..],
        [
            "GET https://a.example/0",
            "GET https://a.example/1",
            "GET https://a.example/2",
            "POST http://a.example/p abc",
            "GET http://a.example/late",
        ]
    );
}

#[test]
fn boto3_puts_and_gets_objects() {
    let script = r#"
import boto3
from botocore.config import Config
def handler(request):
    s3 = boto3.client("s3", region_name="eu-central-1", endpoint_url="http://s3.example:9000",
                      aws_access_key_id="a", aws_secret_access_key="b")
    tag = s3.put_object(Bucket="b", Key="k", Body=b"hello")["ETag"]
    body = s3.get_object(Bucket="b", Key="k")["Body"].read().decode()
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket="b")["Contents"]]
    return f"{tag} {body} {keys}"
"#;
    let list = "<?xml version=\"1.0\"?><ListBucketResult><Contents><Key>k</Key></Contents>\
                </ListBucketResult>";
    let answers = vec![
        answer(200, &[("etag", "\"t\""), ("content-length", "0")], &[]),
        answer(200, &[("content-length", "5")], &["hello"]),
        answer(200, &[("content-type", "application/xml")], &[list]),
    ];
    let called = called(script, BOTO3, answers);
    assert_eq!(called.text, "\"t\" hello ['k']");
    let told = lines(&called.asked);
    assert_eq!(told[0], "PUT http://s3.example:9000/b/k hello");
    assert_eq!(told[1], "GET http://s3.example:9000/b/k");
    assert!(!values(&called.asked[0].head.headers, "authorization").is_empty());
}

#[test]
fn stripe_creates_a_customer() {
    let script = r#"
import stripe
client = stripe.StripeClient("sk_test_x")
def handler(request):
    return client.v1.customers.create({"email": "a@b.c"}).id
"#;
    let packages = [REQUESTS, &["stripe", "typing_extensions"]].concat();
    let called = called(
        script,
        &packages,
        vec![json(r#"{"id": "cus_1", "object": "customer"}"#)],
    );
    assert_eq!(called.text, "cus_1");
    assert_eq!(
        lines(&called.asked),
        ["POST https://api.stripe.com/v1/customers email=a%40b.c"]
    );
    let head = &called.asked[0].head;
    assert_eq!(
        values(&head.headers, "authorization"),
        [b"Bearer sk_test_x"]
    );
}
