//! The handle of a node for embedding programs, the gateway and the admin API.

mod secrets;
mod service;
mod stores;

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use faasw_client::{
    DeployOutcome, DeploymentInfo, EngineInfo, Extension, FunctionBrief, FunctionDetails,
    FunctionInfo, FunctionName, FunctionOptions, ImageInfo, ImportOutcome, LogLine, LogPage,
    NodeSummary, RequestId,
};
use faasw_pool::SeedInfo;
use http::{Request, Response};

pub use self::service::FunctionService;
use super::{parts::NodeParts, state::AliveGuard};
use crate::{
    error::{DeployError, EngineError, FunctionError, ImportError, RollbackError},
    limits::Limits,
    message::{Body, Correlation},
    readiness::Readiness,
    server::{Servers, TlsError},
};

/// A node: it deploys functions and runs each request in a microVM of its own.
///
/// Clones are handles of the same node. It ends with [`Node::shutdown`], or
/// abruptly when the last handle is dropped. Any number of nodes can live in
/// one process.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use faasw::{FunctionOptions, Node};
///
/// let node = Node::builder().start().await?;
/// let module = std::fs::read("hello.wasm")?;
/// node.deploy("hello", module, FunctionOptions::default()).await?;
///
/// let request = http::Request::get("/").body(String::new())?;
/// let response = node.invoke("hello", request).await;
/// println!("{} {:?}", response.status(), response.into_body().into_bytes().await?);
///
/// node.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) parts: Arc<NodeParts>,
    servers: Arc<Servers>,
    /// Self calls hold parts of the node while they run. They go on only as long as this guard
    /// exists.
    _alive_guard: Option<Arc<AliveGuard>>,
}

impl Node {
    /// Creates a handle of these parts and these servers.
    pub(crate) fn of(parts: Arc<NodeParts>, servers: Servers) -> Self {
        Self {
            parts,
            servers: Arc::new(servers),
            _alive_guard: None,
        }
    }

    /// Turns this into the handle for the program that started the node. When its last clone is
    /// dropped, the node is gone.
    pub(crate) fn into_owner(self) -> Self {
        let here = Some(Arc::new(self.parts.state.alive_guard()));
        Self {
            _alive_guard: here,
            ..self
        }
    }

    /// Deploys a function: a component, a WASI preview 1 command, or the text form of either; or a
    /// script that the node has an engine for ([`crate::script`]). Files for the function are put
    /// in front of the module ([`crate::files`]).
    ///
    /// The upload becomes a new version of `name`, and at the end the current one. Requests under
    /// way finish on the version before. Dropping the future before the end stops the work.
    ///
    /// # Errors
    /// Returns an error if the name, the options or the module are rejected, or if the platform
    /// fails. Then an existing function of this name stays as it is.
    pub async fn deploy(
        &self,
        name: &str,
        module: impl Into<Bytes>,
        options: FunctionOptions,
    ) -> Result<DeployOutcome, DeployError> {
        self.parts
            .deployer
            .deploy(name, module.into(), options)
            .await
    }

    /// Returns a module that starts in the state that an export of this module has left: the export
    /// that `options` name ([`FunctionOptions::init`]), or `wizer-initialize`. Nothing is deployed.
    ///
    /// The export runs in a microVM with the limits of a deployment.
    ///
    /// # Errors
    /// Returns an error if the options or the module are rejected, if the export fails, or if it
    /// draws values that a module must not contain (allowed with
    /// [`crate::FreezePolicy::AfterInit`]). Also returns an error if no module can represent the
    /// state that the export has left, or if the platform fails.
    pub async fn wizen(
        &self,
        module: impl Into<Bytes>,
        options: FunctionOptions,
    ) -> Result<Bytes, DeployError> {
        self.parts.deployer.wizen(module.into(), options).await
    }

    /// Adds a language engine: a component that runs scripts whose first file has one of these
    /// extensions. It replaces an engine of the same name. Scripts that are deployed keep the
    /// engine that they were deployed with.
    ///
    /// # Errors
    /// Returns an error if the name or the number of extensions is not valid, if the component is
    /// no engine, or if it does not compile or start. Returns [`EngineError::Taken`] if another
    /// engine has one of the extensions.
    pub async fn add_engine(
        &self,
        name: &str,
        component: impl Into<Bytes>,
        extensions: Vec<Extension>,
    ) -> Result<EngineInfo, EngineError> {
        let engines = &self.parts.engines;
        engines.add(name, component.into(), extensions, false).await
    }

    /// Makes an engine's code and seed unless they exist, so that the next script waits for
    /// neither.
    ///
    /// # Errors
    /// Returns an error if there is no engine of that name ([`EngineError::Unknown`]), or if it
    /// does not compile or start.
    pub async fn warm_engine(&self, name: &str) -> Result<EngineInfo, EngineError> {
        self.parts.engines.warm(name).await
    }

    /// Removes an engine. Scripts that are deployed keep it.
    ///
    /// # Errors
    /// Returns [`EngineError::Unknown`] if there is no engine of that name, and another error if
    /// the registry fails.
    pub async fn remove_engine(&self, name: &str) -> Result<(), EngineError> {
        self.parts.engines.remove(name).await
    }

    /// Lists all language engines by name.
    #[must_use]
    pub fn engines(&self) -> Vec<EngineInfo> {
        self.parts.engines.infos()
    }

    /// Runs a request in an instance of the function.
    ///
    /// The request's path is the path that the function sees. There is always a response: a failure
    /// is a problem body (RFC 9457) with a status of 400 or more. Bodies are streamed in both
    /// directions. A short response is complete when this returns ([`Body::as_bytes`]) and carries
    /// a [`crate::Timing`] among its extensions. Dropping the future or the body ends the instance.
    ///
    /// The request gets a new id, or keeps the [`RequestId`](crate::RequestId) among its
    /// extensions. Logs, problem bodies and the response's `X-Request-Id` carry the same id.
    pub async fn invoke<B>(&self, name: &str, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        // The embedding program may have set an id.
        let id = request.extensions().get::<RequestId>().copied();
        let correlation = Correlation::new(request.headers(), id);
        let dispatcher = &self.parts.dispatcher;
        let follow = dispatcher.follow(&request, &correlation);
        let mut response = dispatcher.invoke(name, request, &correlation, follow).await;
        correlation.write_response_id(response.headers_mut());
        response
    }

    /// Makes a stored version the current one: `version`, or the one with the next lower number.
    /// The seed of that version is made first. Requests under way finish on the version before.
    ///
    /// # Errors
    /// Returns an error if there is no such function or version, if its seed cannot be made, or if
    /// another function has taken one of its hosts. Then the current version stays.
    pub async fn rollback(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<FunctionInfo, RollbackError> {
        self.parts.deployer.rollback(name, version).await
    }

    /// Returns a function with its stored versions.
    ///
    /// # Errors
    /// Returns [`FunctionError::Unknown`] if there is no function of that name, and another error
    /// if the registry fails.
    pub async fn inspect(&self, name: &str) -> Result<FunctionDetails, FunctionError> {
        self.parts.inspector.inspect(name).await
    }

    /// Describes the func-image of a function's current version: its pages by origin, how the pages
    /// that requests use lie in it, and whether it is undamaged. The whole image is read for that.
    ///
    /// # Errors
    /// Returns an error if there is no function of that name, or no image of it that can be read.
    pub async fn image(&self, name: &str) -> Result<ImageInfo, FunctionError> {
        self.parts.inspector.image(name).await
    }

    /// Exports a function's current version for another node that has the same image key
    /// ([`NodeBuilder::image_key`](crate::NodeBuilder::image_key)). The export contains the module
    /// or script, the options with environment and configuration, and the func-image, sealed with
    /// that key. It is as large as the image and is read from disk in pieces of 1 MiB as the body
    /// is read. Across all exports, four pieces are made at the same time, and others wait. A body
    /// that is not read delays no other export, but keeps its files open.
    ///
    /// # Errors
    /// Returns an error if there is no function of that name, or no undamaged image of it.
    pub async fn export(&self, name: &str) -> Result<Body, FunctionError> {
        self.parts.inspector.export(name).await
    }

    /// Makes a version of an export ([`Node::export`]). Its name is `name`, or else the name that
    /// it had on the other node. If the image is usable here, it is read instead of an
    /// initialisation; otherwise [`ImportOutcome::rebuilt`] says why. Four imports run at the same
    /// time. Others wait until the image of one of them is in place or is discarded. Each MiB has
    /// to arrive within [`Limits::idle_client`]. Dropping the future leaves nothing behind once the
    /// import's file is removed.
    ///
    /// # Errors
    /// Returns an error if the export does not arrive completely, cannot be opened, or contains a
    /// version that cannot be deployed. Then an existing function of this name stays as it is.
    pub async fn import<B>(
        &self,
        export: B,
        name: Option<FunctionName>,
    ) -> Result<ImportOutcome, ImportError>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let export = std::pin::pin!(export);
        self.parts.deployer.import(export, name).await
    }

    /// Removes a function with all its versions and its log. Requests under way finish.
    ///
    /// # Errors
    /// Returns [`FunctionError::Unknown`] if there is no function of that name, and another error
    /// if the registry fails.
    pub async fn remove(&self, name: &str) -> Result<(), FunctionError> {
        self.parts.deployer.remove(name).await
    }

    /// Lists all functions by name, with the short fields of each. [`Node::inspect`] returns the
    /// others.
    #[must_use]
    pub fn list(&self) -> Vec<FunctionBrief> {
        self.parts.inspector.list()
    }

    /// Returns the number of functions, without reading any of them.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.parts.functions.count()
    }

    /// Returns the newest lines of a function's log, oldest first, at most `newest`.
    ///
    /// # Errors
    /// Returns [`FunctionError::Unknown`] if there is no function of that name.
    pub fn logs(&self, name: &str, newest: usize) -> Result<Vec<LogLine>, FunctionError> {
        Ok(self.parts.functions.require(name)?.log.newest(newest).lines)
    }

    /// Returns the lines of a function's log after the position `place`, oldest first. Waits until
    /// there is one or the node ends. A position is [`LogPage::next`] of an earlier call; 0 is the
    /// beginning.
    ///
    /// # Errors
    /// Returns [`FunctionError::Unknown`] if there is no function of that name.
    pub async fn logs_after(&self, name: &str, place: u64) -> Result<LogPage, FunctionError> {
        let inspector = &self.parts.inspector;
        inspector.log_page(name, 0, Some(place)).await
    }

    /// Returns the node's current metrics as OpenMetrics text, which Prometheus reads.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.parts.inspector.metrics_text()
    }

    /// Returns a summary of the node's work since its start, as `faasw stats` shows it.
    #[must_use]
    pub fn stats(&self) -> NodeSummary {
        self.parts.inspector.stats()
    }

    /// Lists the deployments under way in the order of their arrival, each with its stage and its
    /// position in the queue.
    #[must_use]
    pub fn deployments(&self) -> Vec<DeploymentInfo> {
        let NodeParts {
            deployments,
            backend,
            ..
        } = &*self.parts;
        deployments.list(|function| backend.queued_behind(function.as_str()))
    }

    /// Returns the current tree of seeds, parents before children: the seeds that all functions
    /// share, then each function's own.
    #[must_use]
    pub fn tree(&self) -> Vec<SeedInfo> {
        self.parts.inspector.tree()
    }

    /// Returns the gateway's address, if it has one. The port is the one that is bound, even if
    /// port 0 was requested.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.servers.gateway_address()
    }

    /// Returns the address of the listener that redirects to https, if there is one, with the port
    /// that is bound.
    #[must_use]
    pub fn redirect_address(&self) -> Option<SocketAddr> {
        self.servers.redirect_address()
    }

    /// Reads the certificate files of [`NodeBuilder::tls`](crate::NodeBuilder::tls) again. Does
    /// nothing on a node without any.
    ///
    /// # Errors
    /// Returns an error if one of them cannot be used. Then all earlier certificates stay in use.
    pub async fn reload_certificates(&self) -> Result<(), TlsError> {
        let Some(tls) = self.servers.tls() else {
            return Ok(());
        };
        let reloading = tokio::task::spawn_blocking(move || tls.reload());
        reloading.await.unwrap_or(Err(TlsError::Interrupted))
    }

    /// Returns the address of the listener for metrics, if there is one, with the port that is
    /// bound.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.servers.metrics_address()
    }

    /// Returns the data directory, if the node has one.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        let directory = self.parts.storage.directory.as_ref();
        directory.map(crate::data_dir::DataDir::path)
    }

    /// Returns the node's limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.parts.limits
    }

    /// Opens a node that was started with
    /// [`NodeBuilder::opens_later`](crate::NodeBuilder::opens_later) to clients. It is ready from
    /// now on. Does nothing if the node is open or ending.
    ///
    /// # Errors
    /// Returns the error of the system call that failed, for example if another program has begun
    /// to listen on the address meanwhile.
    pub fn open(&self) -> io::Result<()> {
        self.servers.open()?;
        self.parts.state.readiness.advance_to(Readiness::Ready);
        Ok(())
    }

    /// Returns whether requests should be sent to the node, as `/readyz` of
    /// [`NodeBuilder::metrics`] reports it.
    ///
    /// [`NodeBuilder::metrics`]: crate::NodeBuilder::metrics
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.parts.state.readiness.now()
    }

    /// Waits until the node has reached `wanted` or a later state, and returns that state.
    pub async fn wait_for_readiness(&self, wanted: Readiness) -> Readiness {
        self.parts.state.readiness.wait_for(wanted).await
    }

    /// Ends the node behind a load balancer. The node stops being ready at once, but accepts
    /// connections and requests for another `delay`, because load balancers notice the change late.
    /// Then it calls [`Node::shutdown`].
    pub async fn drain(&self, delay: Duration) {
        self.parts.state.readiness.advance_to(Readiness::Stopping);
        tokio::time::sleep(delay).await;
        self.shutdown().await;
    }

    /// Ends the node. New requests are rejected, requests under way have [`Limits::shutdown`] to
    /// finish, and then every process ends.
    pub async fn shutdown(&self) {
        self.parts.state.readiness.advance_to(Readiness::Stopping);
        self.parts.state.end();
        self.servers.stop(self.parts.limits.shutdown).await;
        self.parts.backend.shutdown().await;
    }
}
