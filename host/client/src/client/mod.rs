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
use http_body::Body;
use http_body_util::{BodyExt as _, Empty, Full};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::error::ClientError;
use self::{
    exchange::{accepted, request},
    transfer::Upload,
};
use crate::{
    DeployOutcome, DeploymentInfo, EngineInfo, Extension, FunctionBrief, FunctionDetails,
    FunctionInfo, FunctionName, FunctionOptions, ImportOutcome, LogPage, NodeInfo, NodeSummary,
    OPTIONS_BYTES, OPTIONS_FIELD, query,
};

/// Returns the path of the admin socket of the node with this data directory.
#[must_use]
pub fn admin_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("faasw.sock")
}

/// A client of the node with a given data directory. Each call opens its own connection.
#[derive(Clone, Debug)]
pub struct Client {
    data_dir: PathBuf,
}

impl Client {
    /// Creates a client of the node with this data directory. Does not connect yet.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.into(),
        }
    }

    /// Returns information about the node.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn node(&self) -> Result<NodeInfo, ClientError> {
        self.get("node").await
    }

    /// Lists all functions by name. [`Client::inspect`] returns all details of one function.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn list(&self) -> Result<Vec<FunctionBrief>, ClientError> {
        self.get("functions").await
    }

    /// Deploys a module or a script.
    ///
    /// # Errors
    /// Returns an error if no node answers, [`ClientError::Refused`] if the node rejects the name,
    /// the options or the module, and [`ClientError::TooLong`] if the options exceed
    /// [`OPTIONS_BYTES`]. A node that does not report [`NodeInfo::options_limit`] would ignore the
    /// options, so that nothing is sent to it and the error is [`ClientError::Answer`].
    pub async fn deploy(
        &self,
        name: &FunctionName,
        module: Bytes,
        options: &FunctionOptions,
    ) -> Result<DeployOutcome, ClientError> {
        let options = options.to_json();
        if options.len() > OPTIONS_BYTES {
            return Err(ClientError::TooLong(options.len()));
        }
        let node = self.node().await?;
        check_options(&options, &node)?;
        check_module(&module, &node)?;
        let options = HeaderValue::try_from(options).map_err(http::Error::from)?;
        let path = format!("functions/{name}");
        let mut request = request(Method::PUT, &path, Full::new(module))?;
        request.headers_mut().insert(OPTIONS_FIELD, options);
        self.answer(request).await
    }

    /// Lists the deployments in progress.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn deployments(&self) -> Result<Vec<DeploymentInfo>, ClientError> {
        self.get("deployments").await
    }

    /// Lists the language engines.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn engines(&self) -> Result<Vec<EngineInfo>, ClientError> {
        self.get("engines").await
    }

    /// Adds a language engine for scripts with these file extensions, or replaces the engine of
    /// this name.
    ///
    /// # Errors
    /// Returns an error if no node answers or the node rejects the name, the extensions or the
    /// component.
    pub async fn add_engine(
        &self,
        name: &FunctionName,
        component: Bytes,
        extensions: &[Extension],
    ) -> Result<EngineInfo, ClientError> {
        let extensions = extensions.iter().map(|one| ("extension", one.as_str()));
        let path = format!("engines/{name}?{}", query::write(extensions));
        check_module(&component, &self.node().await?)?;
        self.ask(Method::PUT, path, component).await
    }

    /// Makes the code and the seed of an engine in advance.
    ///
    /// # Errors
    /// Returns an error if no node answers, if there is no engine of this name, or if the engine
    /// does not compile or start.
    pub async fn warm_engine(&self, name: &FunctionName) -> Result<EngineInfo, ClientError> {
        let path = format!("engines/{name}/warm");
        self.ask(Method::POST, path, Bytes::new()).await
    }

    /// Removes a language engine. Deployed scripts keep it.
    ///
    /// # Errors
    /// Returns an error if no node answers or there is no engine of this name.
    pub async fn remove_engine(&self, name: &FunctionName) -> Result<(), ClientError> {
        let path = format!("engines/{name}");
        self.change(Method::DELETE, &path, Bytes::new()).await
    }

    /// Removes a function.
    ///
    /// # Errors
    /// Returns an error if no node answers or there is no function of this name.
    pub async fn remove(&self, name: &FunctionName) -> Result<(), ClientError> {
        let path = format!("functions/{name}");
        self.change(Method::DELETE, &path, Bytes::new()).await
    }

    /// Makes a kept version the current one: the given version, or else the one before the current.
    ///
    /// # Errors
    /// Returns an error if no node answers, if there is no such function or version, or if the
    /// version cannot be made current: no seed can be made of it, or another function has its host.
    pub async fn rollback(
        &self,
        name: &FunctionName,
        version: Option<u64>,
    ) -> Result<FunctionInfo, ClientError> {
        let query = version.map_or_else(String::new, |version| format!("?version={version}"));
        let path = format!("functions/{name}/rollback{query}");
        self.ask(Method::POST, path, Bytes::new()).await
    }

    /// Returns a function and its kept versions.
    ///
    /// # Errors
    /// Returns an error if no node answers or there is no function of this name.
    pub async fn inspect(&self, name: &FunctionName) -> Result<FunctionDetails, ClientError> {
        self.get(&format!("functions/{name}")).await
    }

    /// Returns the contents of the image of a function's seed.
    ///
    /// # Errors
    /// Returns an error if no node answers, or if there is no function of this name or no image of
    /// it.
    pub async fn image(&self, name: &FunctionName) -> Result<ImageInfo, ClientError> {
        self.get(&format!("functions/{name}/image")).await
    }

    /// Exports a function's current version for another node with the same image key: module,
    /// options and image, sealed. Writes the export while it arrives, and returns its size in
    /// bytes.
    ///
    /// # Errors
    /// Returns an error if no node answers, if there is no function of this name or no image of it,
    /// or if the export cannot be written. A partly written export is useless.
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

    /// Deploys a function from another node's export, under its original name or the given one. The
    /// export is sent while it is read. If `bytes` is unknown, as for a pipe, everything up to its
    /// end is sent.
    ///
    /// # Errors
    /// Returns an error if no node answers, if the node rejects the export or its contents, or if
    /// the export cannot be read or has fewer than `bytes` bytes.
    pub async fn import(
        &self,
        export: impl AsyncRead + Send + Unpin + 'static,
        bytes: Option<u64>,
        name: Option<&FunctionName>,
    ) -> Result<ImportOutcome, ClientError> {
        let query = name.map_or_else(String::new, |name| format!("?name={name}"));
        let body = Upload::new(export, bytes);
        let asked = request(Method::POST, &format!("import{query}"), body)?;
        self.answer(asked).await
    }

    /// Returns the newest lines of a function's log, at most `newest`.
    ///
    /// # Errors
    /// Returns an error if no node answers or there is no function of this name.
    pub async fn logs(&self, name: &FunctionName, newest: usize) -> Result<LogPage, ClientError> {
        self.get(&format!("functions/{name}/logs?lines={newest}"))
            .await
    }

    /// Returns the lines of a function's log after a place, which is [`LogPage::next`] of the page
    /// before. Waits for a line for a limited time, so a page may be empty.
    ///
    /// # Errors
    /// Returns an error if no node answers or there is no function of this name.
    pub async fn logs_after(
        &self,
        name: &FunctionName,
        place: u64,
    ) -> Result<LogPage, ClientError> {
        self.get(&format!("functions/{name}/logs?after={place}"))
            .await
    }

    /// Returns the node's tree of seeds, parents before children.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn tree(&self) -> Result<Vec<SeedInfo>, ClientError> {
        self.get("tree").await
    }

    /// Returns a summary of the node's metrics since its start.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn stats(&self) -> Result<NodeSummary, ClientError> {
        self.get("stats").await
    }

    /// Returns the node's metrics as OpenMetrics text.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let request = Request::get("/metrics")
            .header(header::HOST, "localhost")
            .body(Empty::<Bytes>::new())?;
        let text = accepted(self.send(request).await?)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends a request to a function, which sees the request's path and query. The response may be
    /// a problem that the node reports. The trailers of the response are among its headers.
    ///
    /// # Errors
    /// Returns an error if no node answers.
    pub async fn invoke(
        &self,
        name: &FunctionName,
        asked: Request<Bytes>,
    ) -> Result<Response<Bytes>, ClientError> {
        let (parts, body) = asked.into_parts();
        let target = parts.uri.path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let query = query::write([("method", parts.method.as_str()), ("path", target)]);
        let path = format!("functions/{name}/invoke?{query}");
        let mut request = request(Method::POST, &path, Full::new(body))?;
        *request.headers_mut() = parts.headers;
        let trailers = HeaderValue::from_static("trailers");
        request.headers_mut().insert(header::TE, trailers);
        self.send(request).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path.to_owned(), Bytes::new()).await
    }

    /// Sends a request whose answer has no body.
    async fn change(&self, method: Method, path: &str, body: Bytes) -> Result<(), ClientError> {
        let request = request(method, path, Full::new(body))?;
        accepted(self.send(request).await?).map(drop)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<T, ClientError> {
        self.answer(request(method, &path, Full::new(body))?).await
    }

    /// Sends a request and parses the answer.
    async fn answer<B, T: DeserializeOwned>(&self, request: Request<B>) -> Result<T, ClientError>
    where
        B: Body<Data: Send, Error: std::error::Error + Send + Sync + 'static> + Send + 'static,
    {
        let body = accepted(self.send(request).await?)?;
        Ok(serde_json::from_slice(&body)?)
    }
}

/// Checks the size of options against the node's own limit.
fn check_options(json: &str, node: &NodeInfo) -> Result<(), ClientError> {
    let (bytes, limit) = (json.len(), node.options_limit);
    if bytes > limit {
        return Err(ClientError::Refused {
            status: StatusCode::BAD_REQUEST,
            detail: format!(
                "the options are {bytes} bytes of JSON; the node takes {limit} at most"
            ),
        });
    }
    Ok(())
}

/// Checks the size of a module before any of it is sent. A node stops reading a module that is too
/// large, and the connection would break before its answer arrives.
fn check_module(module: &Bytes, node: &NodeInfo) -> Result<(), ClientError> {
    let limit = node.module_limit;
    // Files in front of the module have limits of their own.
    let parts = upload::split(module).ok().flatten();
    let bytes = parts.map_or(module.len(), |(_, module)| module.len());
    if bytes > limit {
        return Err(ClientError::Refused {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            detail: format!("the module is {bytes} bytes; at most {limit} are taken"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
