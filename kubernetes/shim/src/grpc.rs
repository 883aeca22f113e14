//! gRPC calls over a Unix socket, one at a time: one request, then the messages of the response.

use std::path::Path;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::{RecvStream, client};
use http::{HeaderMap, Request};
use tokio::net::UnixStream;

use crate::error::Error;

/// Flow-control window in bytes: room for some chunks of a blob that are sent but not yet read.
const WINDOW: u32 = 1 << 20;

/// Length of the prefix of each message: a compression flag and the message's length.
const PREFIX: usize = 5;

/// Maximum size of a message in bytes. A container's record includes its specification; blobs
/// arrive in smaller chunks.
const MESSAGE_MAX: usize = 16 << 20;

/// The ways in which a call can fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server reports that the object does not exist.
    NotFound,
    /// Any other failure, with its reason.
    Other(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Containerd(match failure {
            Failure::NotFound => "not found".into(),
            Failure::Other(why) => why,
        })
    }
}

fn other(why: impl std::fmt::Display) -> Failure {
    Failure::Other(why.to_string())
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection(client::SendRequest<Bytes>);

impl Connection {
    /// Connects to a socket and spawns the task that drives the connection on the current runtime.
    ///
    /// # Errors
    /// Returns [`Failure::Other`] if the connection or the HTTP/2 handshake fails.
    pub async fn open(socket: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| other(format_args!("{}: {error}", socket.display())))?;
        let (sender, connection) = client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(other)?;
        // Each call notices by itself if the connection ends.
        tokio::spawn(async { drop(connection.await) });
        Ok(Self(sender))
    }

    /// Starts a call of a method, `/SERVICE/METHOD`, in a namespace of containerd.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the request cannot be sent or the server rejects it.
    pub async fn call(
        &mut self,
        method: &str,
        namespace: &str,
        message: &[u8],
    ) -> Result<Messages, Failure> {
        let request = Request::post(format!("http://containerd{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("containerd-namespace", namespace)
            .body(())
            .map_err(other)?;
        let length = u32::try_from(message.len()).map_err(other)?;
        let mut framed = BytesMut::with_capacity(PREFIX + message.len());
        framed.extend_from_slice(&[0]);
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(message);
        std::future::poll_fn(|context| self.0.poll_ready(context))
            .await
            .map_err(other)?;
        let (response, mut body) = self.0.send_request(request, false).map_err(other)?;
        body.send_data(framed.freeze(), true).map_err(other)?;
        let response = response.await.map_err(other)?;
        if response.status() != http::StatusCode::OK {
            return Err(other(response.status()));
        }
        // A call that fails immediately has its status in the headers, and no body.
        if response.headers().contains_key("grpc-status") {
            outcome(response.headers())?;
        }
        Ok(Messages {
            body: response.into_body(),
            waiting: BytesMut::new(),
        })
    }
}

/// The messages of a response.
#[derive(Debug)]
pub struct Messages {
    body: RecvStream,
    waiting: BytesMut,
}

impl Messages {
    /// Returns the next message, or `None` after the call has succeeded.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the call failed, or if a message is too long, compressed or
    /// incomplete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(message) = self.take_complete()? {
                return Ok(Some(message));
            }
            match self.body.data().await {
                Some(data) => {
                    let data = data.map_err(other)?;
                    let flow = self.body.flow_control();
                    flow.release_capacity(data.len()).map_err(other)?;
                    self.waiting.extend_from_slice(&data);
                }
                None => {
                    let trailers = self.body.trailers().await.map_err(other)?;
                    outcome(&trailers.unwrap_or_default())?;
                    return if self.waiting.is_empty() {
                        Ok(None)
                    } else {
                        Err(other("a message ends in the middle"))
                    };
                }
            }
        }
    }

    /// Returns the message of a call that has exactly one.
    ///
    /// # Errors
    /// Returns the errors of [`next`](Self::next), and [`Failure::Other`] if there is no message or
    /// more than one.
    pub async fn only(mut self) -> Result<Bytes, Failure> {
        let message = self.next().await?.ok_or_else(|| other("no answer"))?;
        // The call's status follows the message.
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(other("several answers")),
        }
    }

    fn take_complete(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(prefix) = self.waiting.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(other("a message is compressed"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_MAX {
            return Err(other(format_args!("a message has {length} bytes")));
        }
        if self.waiting.len() < PREFIX + length {
            return Ok(None);
        }
        self.waiting.advance(PREFIX);
        Ok(Some(self.waiting.split_to(length).freeze()))
    }
}

/// Returns the result of a call, from the headers or trailers with its status.
fn outcome(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some("5") => Err(Failure::NotFound),
        Some(status) => {
            let message = text("grpc-message").unwrap_or("no reason is given");
            Err(other(format_args!("{message} (status {status})")))
        }
        None => Err(other("a call ended without a status")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(status: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", status.parse().unwrap());
        headers.insert("grpc-message", "no lease".parse().unwrap());
        headers
    }

    #[test]
    fn the_status_of_a_call_is_reported() {
        assert_eq!(outcome(&headers("0")), Ok(()));
        assert_eq!(outcome(&headers("5")), Err(Failure::NotFound));
        let Err(Failure::Other(why)) = outcome(&headers("14")) else {
            panic!();
        };
        assert!(why.contains("no lease") && why.contains("14"), "{why}");
        assert!(outcome(&HeaderMap::new()).is_err());
    }
}
