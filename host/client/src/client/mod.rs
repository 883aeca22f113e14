//! A client of a running node's admin API.

mod error;
mod exchange;
mod key_value;
mod secrets;
mod transfer;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use faasw_abi::files::upload;
use faasw_common::{ImageInfo, SeedInfo};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Full};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::error::ClientError;
use self::{
    exchange::{LINE_BYTES, PREFIX, accepted, request},
    transfer::Upload,
};
use crate::{
    Deployed, DeploymentInfo, EngineInfo, Extension, FunctionBrief, FunctionDetails, FunctionInfo,
    FunctionName, FunctionOptions, Imported, LogPage, NodeInfo, Summary,
    query::{self, Invocation},
};

/// Where the node of a data directory has its admin socket.
#[must_use]
pub fn admin_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("faasw.sock")
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

    /// Lists functions, by name; [`Client::inspect`] has all that is known of one.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn list(&self) -> Result<Vec<FunctionBrief>, ClientError> {
        self.ask(Method::GET, "functions".into(), Bytes::new())
            .await
    }

    /// Deploys a module or a script.
    ///
    /// # Errors
    /// When no node answers, or it refuses name, options or module; when environment, configuration
    /// and warm-up requests are larger together than a request's line can be.
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
        // Files in front of it are held against limits of their own.
        let parts = upload::split(&module).ok().flatten();
        let bytes = parts.map_or(module.len(), |(_, module)| module.len());
        if bytes > limit {
            return Err(ClientError::Refused {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                detail: format!("the module is {bytes} bytes; at most {limit} are taken"),
            });
        }
        self.ask(Method::PUT, path, module).await
    }

    /// Lists deployments under way.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn deployments(&self) -> Result<Vec<DeploymentInfo>, ClientError> {
        self.ask(Method::GET, "deployments".into(), Bytes::new())
            .await
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
    /// When no node answers, or there is no function of that name, or no image of it; when it
    /// cannot be written. What was written by then is of no use.
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

    /// Makes a function of what another node has exported, under the name that it had unless
    /// another one is given. It is sent as it is read: so many `bytes` of it, or all that there
    /// are, where that is not known ahead, as of a pipe.
    ///
    /// # Errors
    /// When no node answers, or it refuses the export or what is in it; when it cannot be read, or
    /// there is less of it.
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
}

#[cfg(test)]
mod tests;
