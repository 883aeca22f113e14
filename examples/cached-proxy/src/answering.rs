//! An answer while its body is written. The SDK's own way ends each body as if it were whole.

use std::io::{self, Write as _};

use spin_sdk::http::{Headers, OutgoingBody, OutgoingResponse, ResponseOutparam};
use wasi::io::streams::OutputStream;

/// Dropped before it is finished, it is cut off for the client.
pub struct Answering {
    // A child of the body, so it is dropped first.
    stream: OutputStream,
    body: OutgoingBody,
}

impl Answering {
    /// Sends the head.
    pub fn begin(out: ResponseOutparam, status: u16, headers: &[(String, Vec<u8>)]) -> Self {
        let headers = Headers::from_list(headers).expect("headers that were headers before");
        let response = OutgoingResponse::new(headers);
        response.set_status_code(status).expect("a status of HTTP");
        let body = response.body().expect("the body is taken once");
        out.set(response);
        let stream = body.write().expect("the stream is taken once");
        Self { stream, body }
    }

    /// Sends this, at the pace of the client. An error says that it has gone away.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.stream.write_all(piece)?;
        io::Write::flush(&mut self.stream)
    }

    /// All of the body has been written.
    pub fn finish(self) {
        let Self { stream, body } = self;
        drop(stream);
        // Refused where another length was promised: then it is cut off, too.
        let _ = OutgoingBody::finish(body, None);
    }

    /// Writes all of the body at once.
    pub fn whole(mut self, body: &[u8]) {
        if self.write(body).is_ok() {
            self.finish();
        }
    }
}
