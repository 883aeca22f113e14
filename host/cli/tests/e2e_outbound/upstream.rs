//! A server that receives the outbound calls of functions.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response,
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

/// Counters of connections and requests.
#[derive(Debug, Default)]
pub struct Counts {
    pub connections: AtomicUsize,
    pub requests: AtomicUsize,
    /// Requests whose answers are held back. `given_up` counts those that the client abandoned.
    pub held: AtomicUsize,
    pub given_up: AtomicUsize,
}

/// An upstream that runs until its runtime ends.
#[derive(Clone)]
pub struct Upstream {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    /// Whether requests for `/held` are answered.
    released: watch::Sender<bool>,
}

/// A request that was not answered yet.
struct HeldRequest(Arc<Counts>, bool);

impl HeldRequest {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.held.fetch_add(1, Ordering::SeqCst);
        Self(counts.clone(), false)
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        if !self.1 {
            self.0.given_up.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A response body that never produces data.
struct SilentBody(#[expect(dead_code, reason = "its drop is counted")] HeldRequest);

impl hyper::body::Body for SilentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Poll::Pending
    }
}

impl Upstream {
    pub async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Self {
            address: listener.local_addr().unwrap(),
            counts: Arc::default(),
            released: watch::Sender::new(false),
        };
        let serving = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, serving) = (tls.clone(), serving.clone());
                serving.counts.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    match tls {
                        // A client that does not trust the server closes the connection.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serving.serve(stream).await;
                            }
                        }
                        None => serving.serve(stream).await,
                    }
                });
            }
        });
        upstream
    }

    pub fn release(&self) {
        self.released.send_replace(true);
    }

    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Returns how many requests were held, and how many of those the client abandoned.
    pub fn held(&self) -> (usize, usize) {
        let given_up = self.counts.given_up.load(Ordering::SeqCst);
        (self.counts.held.load(Ordering::SeqCst), given_up)
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| self.clone().answer(request));
        let http = hyper::server::conn::http1::Builder::new();
        // Clients may disconnect in the middle.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Infallible> {
        self.counts.requests.fetch_add(1, Ordering::SeqCst);
        if request.method() == Method::POST && request.uri().path() == "/echo" {
            return Ok(Response::new(request.into_body().boxed()));
        }
        let host = request.headers().get("host").cloned();
        let said = format!(
            "{} {} of {}",
            request.method(),
            request.uri(),
            host.as_ref()
                .map_or("nobody", |host| host.to_str().unwrap())
        );
        if request.uri().path() == "/through" {
            // Returns the chain of proxies that the request passed.
            let through = request.headers().get_all("cdn-loop").iter();
            let through: Vec<_> = through.map(|value| value.to_str().unwrap()).collect();
            let body = Full::new(Bytes::from(through.join(" | ")));
            return Ok(Response::new(body.map_err(|never| match never {}).boxed()));
        }
        if request.uri().path() == "/begun" {
            let body = SilentBody(HeldRequest::new(&self.counts));
            return Ok(Response::new(body.boxed()));
        }
        if ["/held", "/dropped"].contains(&request.uri().path()) {
            let mut held = HeldRequest::new(&self.counts);
            let mut released = self.released.subscribe();
            released.wait_for(|released| *released).await.unwrap();
            held.1 = true;
        }
        let body = Full::new(Bytes::from(said)).map_err(|never| match never {});
        Ok(Response::new(body.boxed()))
    }
}
