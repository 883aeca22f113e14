//! An HTTP/2 client with prior knowledge, built on hyper's client.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

use super::time_limit;

pub type Sent = BoxBody<Bytes, std::convert::Infallible>;

const WINDOW: u32 = 65_535;

/// A connection that ends when this is dropped.
pub struct Connection {
    pub requests: http2::SendRequest<Sent>,
    driver: JoinHandle<hyper::Result<()>>,
    socket: std::net::TcpStream,
    authority: String,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        // The windows are small, so that data that is not read soon holds back the node.
        Self::with_window(address, WINDOW).await
    }

    /// Opens a connection on which each stream may receive `window` bytes before they are read.
    pub async fn with_window(address: SocketAddr, window: u32) -> Self {
        let socket = std::net::TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        let stream = TcpStream::from_std(socket.try_clone().unwrap()).unwrap();
        let (requests, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(4 * WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        Self {
            requests,
            driver: tokio::spawn(connection),
            socket,
            authority: address.to_string(),
        }
    }

    /// Ends the connection, even if other tasks still hold a part of it.
    pub fn cut(&self) {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Waits until the node ends the connection.
    pub async fn ended(&mut self) {
        let ended = timeout(time_limit(60), &mut self.driver).await;
        let _ = ended.expect("the node ends it").unwrap();
    }

    /// Begins a request to a path. The caller completes it.
    pub fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let uri = format!("http://{}{path}", self.authority);
        Request::builder().method(method).uri(uri)
    }

    pub async fn send(&mut self, request: Request<Sent>) -> hyper::Result<Response<Incoming>> {
        let answer = self.requests.send_request(request);
        let answer = timeout(time_limit(60), answer).await;
        answer.expect("an answer in time")
    }

    pub async fn get(&mut self, path: &str) -> Response<Incoming> {
        let request = self.request("GET", path).body(empty()).unwrap();
        self.send(request).await.unwrap()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

pub fn empty() -> Sent {
    whole("")
}

pub fn whole(bytes: impl Into<Bytes>) -> Sent {
    Full::new(bytes.into()).boxed()
}

/// Reads the content and the trailers.
pub async fn read(response: Response<Incoming>) -> (Bytes, HeaderMap) {
    let body = timeout(time_limit(60), response.into_body().collect()).await;
    let body = body.expect("a body in time").unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    (body.to_bytes(), trailers)
}
