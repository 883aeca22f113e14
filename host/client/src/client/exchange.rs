//! A request to a node and its answer, on a connection of its own.

use std::{io, pin::pin};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::{Client, ClientError, admin_socket};
use crate::ProblemBody;

impl Client {
    pub(super) async fn send<B>(&self, request: Request<B>) -> Result<Response<Bytes>, ClientError>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send + 'static,
    {
        self.exchange(request, async |response| {
            let (mut parts, body) = response.into_parts();
            let body = body.collect().await?;
            parts
                .headers
                .extend(body.trailers().cloned().unwrap_or_default());
            Ok(Response::from_parts(parts, body.to_bytes()))
        })
        .await
    }

    /// Sends a request and passes its response to `read`.
    pub(super) async fn exchange<B, T>(
        &self,
        request: Request<B>,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send + 'static,
    {
        let path = admin_socket(&self.data_dir);
        let stream = UnixStream::connect(&path)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ClientError::NotRunning(self.data_dir.clone())
                }
                _ => ClientError::Socket { path, error },
            })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut answer = pin!(async { read(sender.send_request(request).await?).await });
        // The connection is polled here instead of in a task, so that nothing of a call outlives
        // the call. If the connection ends without an error, this future stays pending.
        let broken = async {
            match connection.await {
                Err(error) => error,
                Ok(()) => std::future::pending().await,
            }
        };
        tokio::select! {
            // A complete answer counts, whatever happened to the connection.
            biased;
            answer = &mut answer => answer,
            // The answer may have arrived before the connection broke, for example if the node
            // rejected a request before it was sent completely. Waiting for it cannot block any
            // more.
            error = broken => match answer.await {
                Err(ClientError::Connection(_)) => Err(error.into()),
                answer => answer,
            },
        }
    }
}

/// Prefix of all paths except that of the metrics.
const PREFIX: &str = "/v1/";

pub(super) fn request<B>(method: Method, path: &str, body: B) -> Result<Request<B>, ClientError> {
    Ok(Request::builder()
        .method(method)
        .uri(format!("{PREFIX}{path}"))
        .header(header::HOST, "localhost")
        .body(body)?)
}

/// Returns the body of a successful response, or the detail of a problem as an error.
pub(super) fn accepted(response: Response<Bytes>) -> Result<Bytes, ClientError> {
    let status = response.status();
    let body = response.into_body();
    if status.is_success() {
        return Ok(body);
    }
    let problem: ProblemBody<'_> = serde_json::from_slice(&body)?;
    Err(ClientError::Refused {
        status,
        detail: problem.detail.into_owned(),
    })
}
