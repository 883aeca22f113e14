//! Counts hits: `GET /NAME` adds one to that name's number and answers with it.

use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

use wasi::keyvalue::{atomics, store};

wit_bindgen::generate!({
    path: "../wit/deps/keyvalue.wit",
    inline: "
        package example:counter;

        world imports {
            import wasi:keyvalue/store@0.2.0-draft2;
            import wasi:keyvalue/atomics@0.2.0-draft2;
        }
    ",
    generate_all,
});

/// The function's own store, which needs no grant.
const STORE: &str = "default";

/// So many characters a name has at most.
const LONGEST_NAME: usize = 64;

struct Counter;

wasip2::http::proxy::export!(Counter);

impl Guest for Counter {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let (status, text) = answer(&request);
        respond(out, status, &text);
    }
}

fn answer(request: &IncomingRequest) -> (u16, String) {
    if !matches!(request.method(), Method::Get) {
        return (405, "only GET counts\n".into());
    }
    let target = request.path_with_query().unwrap_or_default();
    let Some(name) = name(&target) else {
        return (
            404,
            "a name has 1 to 64 letters, digits, '-', '_' and '.'\n".into(),
        );
    };
    // One step for all instances: two requests at once get two numbers.
    let count = store::open(STORE).and_then(|bucket| atomics::increment(&bucket, name, 1));
    match count {
        Ok(count) => (200, format!("{count}\n")),
        Err(error) => {
            // The function's log; a client need not know more than that it may try again.
            eprintln!("{name} was not counted: {error}");
            (503, "the count is not available\n".into())
        }
    }
}

/// The only segment of the path, if it can be a key as it is.
fn name(target: &str) -> Option<&str> {
    let (path, _query) = target.split_once('?').unwrap_or((target, ""));
    let name = path.strip_prefix('/')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    ((1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain)).then_some(name)
}

fn respond(out: ResponseOutparam, status: u16, text: &str) {
    let headers = Fields::new();
    let header = |name: &str, value: &str| {
        headers
            .set(name, &[value.into()])
            .expect("a plain header is accepted");
    };
    header("content-type", "text/plain; charset=utf-8");
    // What a cache answers is not counted.
    header("cache-control", "no-store");
    if status == 405 {
        header("allow", "GET");
    }
    let response = OutgoingResponse::new(headers);
    response.set_status_code(status).expect("a status of HTTP");
    let body = response.body().expect("the body is taken once");

    // The head goes first; the body is written to the stream afterwards.
    ResponseOutparam::set(out, Ok(response));
    let stream = body.write().expect("the stream is taken once");
    // A write that fails means the client has gone away: no reason to trap.
    let _ = stream.blocking_write_and_flush(text.as_bytes());
    // The stream is a child of the body and must be gone before `finish`.
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}
