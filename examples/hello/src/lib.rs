//! The smallest useful function: one `wasi:http/incoming-handler`.

use std::io::Write as _;

use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

struct Hello;

wasip2::http::proxy::export!(Hello);

impl Guest for Hello {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_else(|| "/".into());
        let text = format!("Hello from a microVM: {} {path}\n", name(&request.method()));

        let headers = Fields::new();
        headers
            .set("content-type", &[b"text/plain; charset=utf-8".to_vec()])
            .expect("a plain header is accepted");
        let response = OutgoingResponse::new(headers);
        let body = response.body().expect("the body is taken once");

        // The head goes first; the body is written to the stream afterwards.
        ResponseOutparam::set(response_out, Ok(response));
        let mut stream = body.write().expect("the stream is taken once");
        // A write that fails means the client has gone away: no reason to trap.
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.blocking_flush();
        // The stream is a child of the body and must be gone before `finish`.
        drop(stream);
        let _ = OutgoingBody::finish(body, None);
    }
}

fn name(method: &Method) -> &str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(other) => other,
    }
}
