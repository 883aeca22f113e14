//! A function: one `wasi:http/incoming-handler`.

use std::io::Write as _;

use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

struct Handler;

wasip2::http::proxy::export!(Handler);

impl Guest for Handler {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let target = request.path_with_query().unwrap_or_default();
        let name = target.split_once("?name=").map_or("you", |(_, name)| name);
        let text = format!("Hello, {name}!\n");

        let headers = Fields::new();
        let of_text = b"text/plain; charset=utf-8".to_vec();
        headers
            .set("content-type", &[of_text])
            .expect("a plain header field is taken");
        let response = OutgoingResponse::new(headers);
        let body = response.body().expect("the body is taken once");
        ResponseOutparam::set(out, Ok(response));
        let mut stream = body.write().expect("the stream is taken once");
        // The write fails if the client has gone away.
        let _ = stream.write_all(text.as_bytes());
        drop(stream);
        let _ = OutgoingBody::finish(body, None);
    }
}
