//! A client of a running node's admin API.

mod transfer;

use std::{
    error::Error as _,
    io,
    path::{Path, PathBuf},
    pin::pin,
};

use bytes::Bytes;
use faasw_words::{ImageInfo, SeedInfo};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};

use self::transfer::Upload;
use crate::{
    Deployed, EngineInfo, Extension, FunctionDetails, FunctionInfo, FunctionName, FunctionOptions,
    Imported, LogPage, NodeInfo, ProblemBody, Summary,
    query::{self, Invocation},
};

/// Where the node of a data directory has its admin socket.
#[must_use]
pub fn admin_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("faasw.sock")
}

/// Why a node did not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No node answers.
    #[error("no node is running on the data directory {0:?}")]
    NotRunning(PathBuf),
    /// The node may not be asked.
    #[error("the admin socket {path:?} cannot be used: {error}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the node stopped answering: {0}")]
    Connection(#[source] hyper::Error),
    /// What the node is to have cannot be read here, or what it sends cannot be written.
    #[error("a file cannot be read or written: {0}")]
    File(#[from] io::Error),
    /// The node refused, or failed.
    #[error("{detail}")]
    Refused {
        /// Status of the answer.
        status: StatusCode,
        /// What the node says, complete.
        detail: String,
    },
    /// The node's answer makes no sense.
    #[error("the node's answer cannot be read: {0}; is it another version of faasw?")]
    Answer(#[from] serde_json::Error),
    /// What a deployment asks for takes so many bytes, as a request's line spells it.
    #[error(
        "name and options take {0} bytes as the request spells them, three for most that are no ASCII letter or \
         digit, and at most {LINE_BYTES} are sent: environment, configuration and warm-up requests are too \
         large together"
    )]
    TooLong(usize),
    /// The request cannot be written.
    #[error("the request is not valid: {0}")]
    Request(#[from] http::Error),
}

/// Most bytes of a request's path and query that can be written.
const LINE_BYTES: usize = u16::MAX as usize - 1;

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        // A request's body that could not be read here is no fault of the node's.
        let body = error.is_user().then(|| error.source()).flatten();
        match body.and_then(|error| error.downcast_ref::<io::Error>()) {
            Some(body) => Self::File(again(body)),
            None => Self::Connection(error),
        }
    }
}

/// The same error, which is somebody else's.
fn again(error: &io::Error) -> io::Error {
    let said = || io::Error::new(error.kind(), error.to_string());
    error
        .raw_os_error()
        .map_or_else(said, io::Error::from_raw_os_error)
}

/// Asks the node of a data directory. Each call is a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    data_dir: PathBuf,
}

impl Client {
    /// A client of the node that has this data directory. It connects later.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.into(),
        }
    }

    /// Asks the node about itself.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn node(&self) -> Result<NodeInfo, ClientError> {
        self.ask(Method::GET, "node".into(), Bytes::new()).await
    }

    /// Lists functions.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn list(&self) -> Result<Vec<FunctionInfo>, ClientError> {
        self.ask(Method::GET, "functions".into(), Bytes::new())
            .await
    }

    /// Deploys a module or a script.
    ///
    /// # Errors
    /// When no node answers, or it refuses name, options or module; when environment, configuration and
    /// warm-up requests are larger together than a request's line can be.
    pub async fn deploy(
        &self,
        name: &FunctionName,
        module: Bytes,
        options: &FunctionOptions,
    ) -> Result<Deployed, ClientError> {
        let path = format!("functions/{name}?{}", query::write_options(options));
        let bytes = PREFIX.len() + path.len();
        if bytes > LINE_BYTES {
            return Err(ClientError::TooLong(bytes));
        }
        self.send_module(path, module).await
    }

    async fn send_module<T: DeserializeOwned>(
        &self,
        path: String,
        module: Bytes,
    ) -> Result<T, ClientError> {
        // A node stops reading what is too large, and the connection would
        // break before its answer arrives: better not to begin.
        let limit = self.node().await?.module_limit;
        if module.len() > limit {
            return Err(ClientError::Refused {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                detail: format!(
                    "the module is {} bytes; at most {limit} are taken",
                    module.len()
                ),
            });
        }
        self.ask(Method::PUT, path, module).await
    }

    /// Lists language engines.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn engines(&self) -> Result<Vec<EngineInfo>, ClientError> {
        self.ask(Method::GET, "engines".into(), Bytes::new()).await
    }

    /// Adds a language engine for scripts whose names end like this, or replaces the one of
    /// its name.
    ///
    /// # Errors
    /// When no node answers, or it refuses name, extensions or component.
    pub async fn add_engine(
        &self,
        name: &FunctionName,
        component: Bytes,
        extensions: &[Extension],
    ) -> Result<EngineInfo, ClientError> {
        let path = format!("engines/{name}?{}", query::write_extensions(extensions));
        self.send_module(path, component).await
    }

    /// Has an engine's code and seed made ahead.
    ///
    /// # Errors
    /// When no node answers, or there is none of that name.
    pub async fn warm_engine(&self, name: &FunctionName) -> Result<EngineInfo, ClientError> {
        let path = format!("engines/{name}/warm");
        self.ask(Method::POST, path, Bytes::new()).await
    }

    /// Removes a language engine. Scripts that are deployed keep it.
    ///
    /// # Errors
    /// When no node answers, or there is none of that name.
    pub async fn remove_engine(&self, name: &FunctionName) -> Result<(), ClientError> {
        let request = request(
            Method::DELETE,
            &format!("engines/{name}"),
            Empty::<Bytes>::new(),
        )?;
        accepted(self.send(request).await?).map(|_| ())
    }

    /// Removes a function.
    ///
    /// # Errors
    /// When no node answers, or there is none of that name.
    pub async fn remove(&self, name: &FunctionName) -> Result<(), ClientError> {
        let path = format!("functions/{name}");
        let request = request(Method::DELETE, &path, Empty::<Bytes>::new())?;
        accepted(self.send(request).await?).map(|_| ())
    }

    /// Makes a version that is kept the current one; without a number, the one
    /// before the current.
    ///
    /// # Errors
    /// When no node answers, or there is no such function or version.
    pub async fn rollback(
        &self,
        name: &FunctionName,
        version: Option<u64>,
    ) -> Result<FunctionInfo, ClientError> {
        let query = version.map_or_else(String::new, |version| format!("?version={version}"));
        let path = format!("functions/{name}/rollback{query}");
        self.ask(Method::POST, path, Bytes::new()).await
    }

    /// A function with the versions of it that are kept.
    ///
    /// # Errors
    /// When no node answers, or there is none of that name.
    pub async fn inspect(&self, name: &FunctionName) -> Result<FunctionDetails, ClientError> {
        self.ask(Method::GET, format!("functions/{name}"), Bytes::new())
            .await
    }

    /// What the image of a function's seed has.
    ///
    /// # Errors
    /// When no node answers, or there is no function of that name, or no image of it.
    pub async fn image(&self, name: &FunctionName) -> Result<ImageInfo, ClientError> {
        let path = format!("functions/{name}/image");
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Writes a function's current version for another node that has the same image key: module,
    /// options and image, sealed. It is written as it comes; says how many bytes it has.
    ///
    /// # Errors
    /// When no node answers, or there is no function of that name, or no image of it; when it cannot
    /// be written. What was written by then is of no use.
    pub async fn export(
        &self,
        name: &FunctionName,
        mut to: impl AsyncWrite + Unpin,
    ) -> Result<u64, ClientError> {
        let path = format!("functions/{name}/export");
        let asked = request(Method::GET, &path, Empty::<Bytes>::new())?;
        self.exchange(asked, async |response| {
            let (parts, mut body) = response.into_parts();
            if !parts.status.is_success() {
                let body = body.collect().await?.to_bytes();
                let refused = accepted(Response::from_parts(parts, body));
                return refused.map(|body| body.len() as u64);
            }
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                if let Ok(data) = frame?.into_data() {
                    transfer::write_all(&mut to, &data).await?;
                    bytes += data.len() as u64;
                }
            }
            transfer::flush(&mut to).await?;
            Ok(bytes)
        })
        .await
    }

    /// Makes a function of what another node has exported, under the name that it had unless another
    /// one is given. It is sent as it is read: so many `bytes` of it, or all that there are, where that is
    /// not known ahead, as of a pipe.
    ///
    /// # Errors
    /// When no node answers, or it refuses the export or what is in it; when it cannot be read, or there
    /// is less of it.
    pub async fn import(
        &self,
        export: impl AsyncRead + Send + Unpin + 'static,
        bytes: Option<u64>,
        name: Option<&FunctionName>,
    ) -> Result<Imported, ClientError> {
        let query = name.map_or_else(String::new, |name| format!("?name={name}"));
        let body = Upload::new(export, bytes);
        let asked = request(Method::POST, &format!("import{query}"), body)?;
        let body = accepted(self.send(asked).await?)?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// The newest lines of a function's log; at most `newest`.
    ///
    /// # Errors
    /// When no node answers, or there is none of that name.
    pub async fn logs(&self, name: &FunctionName, newest: usize) -> Result<LogPage, ClientError> {
        let path = format!("functions/{name}/logs?lines={newest}");
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The lines of a function's log after a place, [`LogPage::next`] of the
    /// page before. Waits for one, though not for ever: a page may be empty.
    ///
    /// # Errors
    /// When no node answers, or there is none of that name.
    pub async fn logs_after(
        &self,
        name: &FunctionName,
        place: u64,
    ) -> Result<LogPage, ClientError> {
        let path = format!("functions/{name}/logs?after={place}");
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The node's tree of seeds, parents before children.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn tree(&self) -> Result<Vec<SeedInfo>, ClientError> {
        self.ask(Method::GET, "tree".into(), Bytes::new()).await
    }

    /// What the node has done since it started.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn stats(&self) -> Result<Summary, ClientError> {
        self.ask(Method::GET, "stats".into(), Bytes::new()).await
    }

    /// The node's metrics as OpenMetrics text.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let request = Request::get("/metrics")
            .header(header::HOST, "localhost")
            .body(Empty::<Bytes>::new())?;
        let text = accepted(self.send(request).await?)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends a request to a function. Its path and query are what the function
    /// sees. The response may be a problem of the node's; fields that came
    /// behind its body are among its headers.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn invoke(
        &self,
        name: &FunctionName,
        asked: Request<Bytes>,
    ) -> Result<Response<Bytes>, ClientError> {
        let (parts, body) = asked.into_parts();
        let path_and_query = parts.uri.path_and_query();
        let invocation = Invocation {
            method: parts.method.as_str().into(),
            path: path_and_query.map_or("/", |path| path.as_str()).into(),
        };
        let path = format!(
            "functions/{name}/invoke?{}",
            query::write_invocation(&invocation)
        );
        let mut request = request(Method::POST, &path, Full::new(body))?;
        *request.headers_mut() = parts.headers;
        let trailers = HeaderValue::from_static("trailers");
        request.headers_mut().insert(header::TE, trailers);
        self.send(request).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let request = request(method, &path, Full::new(body))?;
        let response = self.send(request).await?;
        let body = accepted(response)?;
        Ok(serde_json::from_slice(&body)?)
    }

    async fn send<B>(&self, request: Request<B>) -> Result<Response<Bytes>, ClientError>
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

    /// Sends a request, and has its response read.
    async fn exchange<B, T>(
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
        // The connection is driven here rather than by a task, so that nothing
        // of a call outlives it. It pends for ever if it ends well before the answer.
        let broken = async {
            match connection.await {
                Err(error) => error,
                Ok(()) => std::future::pending().await,
            }
        };
        tokio::select! {
            // An answer that is there counts, whatever became of the connection.
            biased;
            answer = &mut answer => answer,
            // It may have come with the end, before all was sent. It waits for nothing more.
            error = broken => match answer.await {
                Err(ClientError::Connection(_)) => Err(error.into()),
                answer => answer,
            },
        }
    }
}

/// What all paths begin with.
const PREFIX: &str = "/v1/";

fn request<B>(method: Method, path: &str, body: B) -> Result<Request<B>, ClientError> {
    Ok(Request::builder()
        .method(method)
        .uri(format!("{PREFIX}{path}"))
        .header(header::HOST, "localhost")
        .body(body)?)
}

/// The body of a good answer; a problem's detail as an error.
fn accepted(response: Response<Bytes>) -> Result<Bytes, ClientError> {
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

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::{UnixListener, UnixStream},
        task::{Context, Poll},
    };

    use tokio::io::ReadBuf;

    use super::*;

    fn name() -> FunctionName {
        FunctionName::new("f").unwrap()
    }

    #[tokio::test]
    async fn options_that_no_request_can_spell_are_told() {
        let spelled = |bytes| request(Method::PUT, &"a".repeat(bytes), Empty::<Bytes>::new());
        assert!(spelled(LINE_BYTES - PREFIX.len()).is_ok());
        assert!(spelled(LINE_BYTES - PREFIX.len() + 1).is_err());
        let folder = std::env::temp_dir().join("no node of faasw is here");
        let client = Client::new(&folder);
        let fits = FunctionOptions::default().env("A", "b".repeat(65_000));
        let asked = client.deploy(&name(), Bytes::new(), &fits).await;
        assert!(
            matches!(asked, Err(ClientError::NotRunning(_))),
            "{asked:?}"
        );
        // Short keys, and letters that are not ASCII, are within what a configuration may have.
        let short = (0..5000).fold(FunctionOptions::default(), |options, number| {
            let letters = [number / 676, number / 26, number].map(|at| b'a' + (at % 26) as u8);
            options.config(String::from_utf8_lossy(&letters), "")
        });
        let foreign = FunctionOptions::default().config("a", "\u{fc}".repeat(8000));
        let foreign = foreign.env("B", "\u{fc}".repeat(4000));
        for options in [short, foreign] {
            assert_eq!(options.check(), Ok(()));
            let asked = client.deploy(&name(), Bytes::new(), &options).await;
            let told = asked.unwrap_err().to_string();
            for part in ["environment", "configuration", "warm-up", "65534"] {
                assert!(told.contains(part), "{told}");
            }
        }
    }

    /// A node that does this with whoever comes, so many times.
    fn node(
        what: &str,
        times: usize,
        does: fn(UnixStream),
    ) -> (Client, std::thread::JoinHandle<()>) {
        let folder = format!("faasw-client-{what}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let socket = UnixListener::bind(admin_socket(&folder)).unwrap();
        let client = Client::new(&folder);
        let node = std::thread::spawn(move || {
            for _ in 0..times {
                does(socket.accept().unwrap().0);
            }
            std::fs::remove_dir_all(&folder).unwrap();
        });
        (client, node)
    }

    /// As whoever writes a pipe may pause.
    struct Pausing;

    impl AsyncRead for Pausing {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_node_that_waits_no_longer_is_heard() {
        let (client, node) = node("late", 2, |mut client| {
            let _ = client.read(&mut [0; 10_000]);
            let said = r#"{"type":"t","title":"t","status":408,"detail":"too late"}"#;
            let head = "HTTP/1.1 408 Request Timeout\r\ncontent-length";
            let answer = format!("{head}: {}\r\n\r\n{said}", said.len());
            client.write_all(answer.as_bytes()).unwrap();
        });
        for bytes in [None, Some(100)] {
            let refused = client.import(Pausing, bytes, None).await.unwrap_err();
            assert_eq!(refused.to_string(), "too late");
        }
        node.join().unwrap();
    }

    /// Has some, and then cannot be read.
    struct Unreadable(bool);

    impl AsyncRead for Unreadable {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(Err(io::Error::from_raw_os_error(5)));
            }
            into.put_slice(b"some");
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_no_fault_of_the_nodes() {
        let (client, node) = node("unread", 3, |mut client| {
            let _ = client.read_to_end(&mut Vec::new());
        });
        for bytes in [Some(100), None] {
            let error = client.import(Unreadable(false), bytes, None).await;
            let error = error.unwrap_err();
            let is_so = |error: &io::Error| error.raw_os_error() == Some(5);
            assert!(
                matches!(&error, ClientError::File(error) if is_so(error)),
                "{error}"
            );
        }
        let short = client
            .import(&b"short"[..], Some(6), None)
            .await
            .unwrap_err();
        let is_so = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        assert!(
            matches!(&short, ClientError::File(error) if is_so(error)),
            "{short}"
        );
        node.join().unwrap();
    }
}
