//! Bodies of scripts in Python: text, binary data and forms, whole and streamed, with each form of
//! handler.

use faasw::Digest;

use crate::{
    deploy,
    e2e::{BENCH, binary},
};

pub fn bodies_stream_both_ways() {
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

/// The unread part of a body is released. If an instance trapped, its log would report that.
pub fn a_body_may_be_left_unread() {
    deploy(
        "unread",
        "def app(environ, start_response):\n  read = environ['wsgi.input'].read(3)\n  \
         start_response('200 OK', [])\n  return [read]",
    );
    let body = "abc".repeat(100_000);
    for body in ["abc", body.as_str()] {
        for _ in 0..3 {
            assert_eq!(BENCH.request("POST", "/unread/", "", body).body, "abc");
        }
    }
    assert_eq!(BENCH.log("unread"), Vec::<String>::new());
}

/// A handler receives and returns bytes unchanged, in every way that it may read and write them.
pub fn binary_bodies_arrive_as_they_were_sent() {
    deploy(
        "binary",
        "
import hashlib
from faasw import Response
def handler(request):
    if request.path == '/body':
        return request.body
    if request.path == '/bytearray':
        return Response(bytearray(request.body))
    if request.path == '/iterated':
        return Response(piece for piece in request)
    if request.path == '/cut':
        return Response(part for piece in request for part in (piece[:3], piece[3:]))
    count, values, digest = 0, set(), hashlib.sha256()
    for piece in request:
        count += len(piece)
        values.update(piece)
        digest.update(piece)
    return f'{count} {len(values)} {digest.hexdigest()}'
",
    );
    deploy(
        "wsgi",
        "
def app(environ, start_response):
    read = environ['wsgi.input'].read
    whole = environ['PATH_INFO'] == '/whole'
    pieces = [read()] if whole else iter(lambda: read(1000), b'')
    start_response('200 OK', [('Content-Type', 'application/octet-stream')])
    return pieces
",
    );
    deploy(
        "asgi",
        "
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        while True:
            message = await receive()
            await send({'type': message['type'] + '.complete'})
            if message['type'] == 'lifespan.shutdown':
                return
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    kept, is_streamed, more = b'', scope['path'] != '/whole', True
    while more:
        message = await receive()
        kept, more = kept + message.get('body', b''), message.get('more_body', False)
        if is_streamed:
            await send({'type': 'http.response.body', 'body': kept, 'more_body': True})
            kept = b''
    await send({'type': 'http.response.body', 'body': kept})
",
    );
    for path in [
        "binary/body",
        "binary/bytearray",
        "binary/iterated",
        "binary/cut",
        "wsgi/whole",
        "wsgi/pieces",
        "asgi/whole",
        "asgi/pieces",
    ] {
        BENCH.assert_echoes_bytes(&format!("/{path}"));
    }
    // Errors in both directions could cancel each other.
    let body = binary();
    let told = BENCH.request("POST", "/binary/told", "", &body);
    let wanted = format!("{} 256 {}", body.len(), Digest::of(&body));
    assert_eq!(told.body, wanted);
}
