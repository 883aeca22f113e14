//! Errors and refusals.

use crate::support::calls::{answer, failed};
use crate::support::scripts::{PYTHON, asked};
use crate::{called, json};
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use faasw_runtime::testing::MemoryAnswer;

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
