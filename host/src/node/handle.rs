//! The node as embedding programs, the gateway and the admin API hold it.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use faasw_client::{
    Deployed, DeploymentInfo, EngineInfo, Extension, FunctionBrief, FunctionDetails, FunctionInfo,
    FunctionName, FunctionOptions, ImageInfo, Imported, LogLine, LogPage, RequestId, Summary,
};
use faasw_pool::SeedInfo;
use http::{Request, Response};

use super::core::{Core, Here};
use crate::{
    error::{DeployError, EngineError, FunctionError, ImportError, RollbackError},
    limits::Limits,
    message::{Body, Correlation, Follow},
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
    pub(super) core: Arc<Core>,
    servers: Arc<Servers>,
    /// What functions ask each other has the core while it runs, and goes on as long as this is
    /// there.
    _here: Option<Arc<Here>>,
}

impl Node {
    /// A handle of these.
    pub(crate) fn of(core: Arc<Core>, servers: Servers) -> Self {
        Self {
            core,
            servers: Arc::new(servers),
            _here: None,
        }
    }

    /// The handle that whoever starts the node gets: it is gone when its last clone is.
    pub(crate) fn whole(self) -> Self {
        let here = Some(Arc::new(self.core.here()));
        Self {
            _here: here,
            ..self
        }
    }

    /// Makes a function of a module: a component, a WASI preview 1 command, or
    /// the text form of either; or of a script that the node has an engine for
    /// ([`crate::script`]). With [`crate::files`] in front of it, it has these.
    ///
    /// It becomes a new version of the name, and the current one at the end;
    /// requests under way finish on the version before. Dropping the future
    /// before that stops the work.
    ///
    /// # Errors
    /// When name, options or module are refused, or the platform fails. A
    /// function that was there before stays.
    pub async fn deploy(
        &self,
        name: &str,
        module: impl Into<Bytes>,
        options: FunctionOptions,
    ) -> Result<Deployed, DeployError> {
        self.core.deploy(name, module.into(), options).await
    }

    /// A module that begins where the export that `options` name has left this one
    /// ([`FunctionOptions::init`]), or a module's `wizer-initialize`; nothing is deployed.
    ///
    /// The export runs in a microVM with the limits of a deployment.
    ///
    /// # Errors
    /// When options or module are refused, when the export fails or draws what a module is
    /// not to have ([`crate::FreezePolicy::AfterInit`] lets it), when no module can begin
    /// where it has left this one; and when the platform fails.
    pub async fn wizen(
        &self,
        module: impl Into<Bytes>,
        options: FunctionOptions,
    ) -> Result<Bytes, DeployError> {
        self.core.wizen(module.into(), options).await
    }

    /// Adds a language engine: a component that takes scripts whose first file ends with
    /// one of these extensions, in place of any engine of this name. Scripts that are
    /// deployed keep the engine that they were deployed with.
    ///
    /// # Errors
    /// When it is no engine, does not compile or start, or another engine has an extension.
    pub async fn add_engine(
        &self,
        name: &str,
        component: impl Into<Bytes>,
        extensions: Vec<Extension>,
    ) -> Result<EngineInfo, EngineError> {
        self.core
            .add_engine(name, component.into(), extensions, false)
            .await
    }

    /// Has an engine's code and seed made, unless they are there: the next script waits for
    /// neither.
    ///
    /// # Errors
    /// When there is none of that name, or it does not compile or start.
    pub async fn warm_engine(&self, name: &str) -> Result<EngineInfo, EngineError> {
        self.core.warm_engine(name).await
    }

    /// Removes an engine. Scripts that are deployed keep it.
    ///
    /// # Errors
    /// When there is none of that name, or the registry fails.
    pub async fn remove_engine(&self, name: &str) -> Result<(), EngineError> {
        self.core.remove_engine(name).await
    }

    /// All language engines, by name.
    #[must_use]
    pub fn engines(&self) -> Vec<EngineInfo> {
        self.core.engine_infos()
    }

    /// Runs a request in an instance of the function.
    ///
    /// The request's path is the one the function sees. There is always a
    /// response: a failure is a problem body (RFC 9457) with a status of 400
    /// or more. Bodies pass as they come, both ways; a short response is whole
    /// when it is there ([`Body::as_bytes`]) and carries a [`crate::Timing`]
    /// among its extensions. Dropping the future or the body ends the instance.
    ///
    /// The request has a new id, or the [`RequestId`](crate::RequestId) among its extensions; what
    /// is told of it in logs and problem bodies has the same, and the response's `X-Request-Id`.
    pub async fn invoke<B>(&self, name: &str, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        // A program may have given it an id of its own.
        let id = request.extensions().get::<RequestId>().copied();
        let known = Correlation::new(request.headers(), id);
        let follow = self.core.follow(&request, &known);
        let mut response = self.core.invoke(name, request, &known, follow).await;
        known.tell(response.headers_mut());
        response
    }

    /// Follows a request to its end, if anybody wants to know of it.
    pub(crate) fn follow<B>(
        &self,
        request: &Request<B>,
        known: &Correlation,
    ) -> Option<Box<Follow>> {
        self.core.follow(request, known)
    }

    /// The same for a request that is followed, if it is, by whoever has it; its client is told
    /// the id where it is answered.
    pub(crate) async fn answer<B>(
        &self,
        name: &str,
        request: Request<B>,
        known: &Correlation,
        follow: Option<Box<Follow>>,
    ) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        self.core.invoke(name, request, known, follow).await
    }

    /// Makes a version that is kept the current one: the one asked for, or the
    /// one numbered next below the current. Its seed is made first; requests
    /// under way finish on the version before.
    ///
    /// # Errors
    /// When there is no such function or version, or no seed can be made of it.
    pub async fn rollback(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<FunctionInfo, RollbackError> {
        self.core.rollback(name, version).await
    }

    /// A function with the versions of it that are kept.
    ///
    /// # Errors
    /// When there is none of that name, or the registry fails.
    pub async fn inspect(&self, name: &str) -> Result<FunctionDetails, FunctionError> {
        self.core.inspect(name).await
    }

    /// What the func-image of a function's current version has: its pages by where they come
    /// from, how those that requests use lie in it, whether it is sound. All of it is read.
    ///
    /// # Errors
    /// When there is no function of that name, or no image of it that can be read.
    pub async fn image(&self, name: &str) -> Result<ImageInfo, FunctionError> {
        self.core.image(name).await
    }

    /// A function's current version for another node that has the same image key
    /// ([`NodeBuilder::image_key`](crate::NodeBuilder::image_key)): its module or script, its
    /// options, environment and configuration included, and its func-image, sealed with that key.
    /// It is read from the disk as the body is read, a MiB of it, and is as large as the image. Of
    /// all exports four such pieces are made at once, and others wait for these; nobody waits for a
    /// body that is not read, which keeps its files open.
    ///
    /// # Errors
    /// When there is no function of that name, or no image of it that is sound.
    pub async fn export(&self, name: &str) -> Result<Body, FunctionError> {
        self.core.export(name).await
    }

    /// Makes a version of what [`Node::export`] gave, of the name that it had there unless another
    /// one is given. Where the image is good here it is read instead of initialising anything;
    /// [`Imported::rebuilt`] says why, where it is not. Four come in at once, and others wait until
    /// the image of one of these is in its place, or it is built anew. Each MiB of it has to come
    /// within [`Limits::idle_client`]; dropping the future leaves nothing of it behind, once its
    /// file is removed.
    ///
    /// # Errors
    /// When the export does not come to its end or cannot be opened, or what is in it cannot be
    /// deployed. A function that was there before stays.
    pub async fn import<B>(
        &self,
        export: B,
        name: Option<FunctionName>,
    ) -> Result<Imported, ImportError>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        self.import_from(std::pin::pin!(export), name).await
    }

    /// The same, of a body of which the rest is somebody else's to read.
    pub(crate) async fn import_from<B>(
        &self,
        export: std::pin::Pin<&mut B>,
        name: Option<FunctionName>,
    ) -> Result<Imported, ImportError>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        self.core.import(export, name).await
    }

    /// Removes a function with all its versions and its log. Requests under
    /// way finish.
    ///
    /// # Errors
    /// When there is none of that name, or the registry fails.
    pub async fn remove(&self, name: &str) -> Result<(), FunctionError> {
        self.core.remove(name).await
    }

    /// All functions, by name, in what is short of each; [`Node::inspect`] has the rest.
    #[must_use]
    pub fn list(&self) -> Vec<FunctionBrief> {
        self.core.list()
    }

    /// How many functions there are: nothing of any is looked at.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.core.count()
    }

    /// The newest lines of a function's log, oldest first; at most `newest`.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn logs(&self, name: &str, newest: usize) -> Result<Vec<LogLine>, FunctionError> {
        self.core.logs(name, newest)
    }

    /// The lines of a function's log after a place in it, oldest first; waits
    /// until there is one, or the node ends. A place is [`LogPage::next`] of an
    /// earlier call; 0 is the beginning.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn logs_after(&self, name: &str, place: u64) -> Result<LogPage, FunctionError> {
        self.core.log_page(name, 0, Some(place)).await
    }

    /// The function that has this host, in lower case, for its own.
    pub(crate) fn function_of_host(&self, host: &str) -> Option<FunctionName> {
        self.core.function_of_host(host)
    }

    pub(crate) async fn log_page(
        &self,
        name: &str,
        newest: usize,
        after: Option<u64>,
    ) -> Result<LogPage, FunctionError> {
        self.core.log_page(name, newest, after).await
    }

    /// The node's metrics of now, as OpenMetrics text, which Prometheus reads.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.core.metrics_text()
    }

    /// What the node has done since it started, as `faasw stats` shows it.
    #[must_use]
    pub fn stats(&self) -> Summary {
        self.core.stats()
    }

    /// Deployments under way, and what each does or waits for, in the order in which they came.
    #[must_use]
    pub fn deployments(&self) -> Vec<DeploymentInfo> {
        self.core.deployments_under_way()
    }

    /// The tree of seeds as it is now, parents before children: what all functions
    /// share, then each function's own.
    #[must_use]
    pub fn tree(&self) -> Vec<SeedInfo> {
        self.core.tree()
    }

    /// The gateway's address, if it has one: the port is the real one also
    /// when 0 was asked for.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.servers.gateway_address()
    }

    /// The address that redirects to https, if there is one; with the real port.
    #[must_use]
    pub fn redirect_address(&self) -> Option<SocketAddr> {
        self.servers.redirect_address()
    }

    /// Reads the certificates of [`NodeBuilder::tls`](crate::NodeBuilder::tls) again, as their
    /// files are now. A node without any has nothing to do.
    ///
    /// # Errors
    /// When one cannot be used: then all those before stay in use.
    pub async fn reload_certificates(&self) -> Result<(), TlsError> {
        let Some(tls) = self.servers.tls() else {
            return Ok(());
        };
        let reloading = tokio::task::spawn_blocking(move || tls.reload());
        reloading.await.unwrap_or(Err(TlsError::Interrupted))
    }

    /// The address of the listener for metrics, if it has one; with the real port.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.servers.metrics_address()
    }

    /// The data directory, if the node has one.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        let directory = self.core.storage.directory.as_ref();
        directory.map(crate::data_dir::DataDir::path)
    }

    /// The node's limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.core.limits
    }

    /// Lets clients connect to a node that was started with
    /// [`NodeBuilder::opens_later`](crate::NodeBuilder::opens_later): it is ready from now on. One
    /// that is open, or ends, has nothing to do.
    ///
    /// # Errors
    /// The system's, as when another program has begun to listen on the address meanwhile.
    pub fn open(&self) -> io::Result<()> {
        self.servers.open()?;
        self.core.readiness.goes_on(Readiness::Ready);
        Ok(())
    }

    /// Whether requests should be sent to the node: what `/readyz` of [`NodeBuilder::metrics`]
    /// says.
    ///
    /// [`NodeBuilder::metrics`]: crate::NodeBuilder::metrics
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.core.readiness.now()
    }

    /// Waits until the node is as far as this, or further, which is returned.
    pub async fn reaches(&self, wanted: Readiness) -> Readiness {
        self.core.readiness.reaches(wanted).await
    }

    /// Ends the node as a load balancer would have it: it is not ready from now on, and still
    /// accepts connections and requests for `delay`, since whoever sends them hears of that with a
    /// delay; then [`Node::shutdown`].
    pub async fn drain(&self, delay: Duration) {
        self.core.readiness.goes_on(Readiness::Stopping);
        tokio::time::sleep(delay).await;
        self.shutdown().await;
    }

    /// Ends the node: new requests are refused, those under way have
    /// [`Limits::shutdown`] to finish, then every process ends.
    pub async fn shutdown(&self) {
        self.core.readiness.goes_on(Readiness::Stopping);
        self.core.end();
        self.servers.stop(self.core.limits.shutdown).await;
        self.core.backend.shutdown().await;
    }
}
