//! The standard library: `http.client`, `urllib`, sockets and `asyncio`.

use crate::support::calls::answer;
use crate::support::values;
use crate::{called, called_with, json, lines};
use faasw_abi::outgoing::Tail;

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
