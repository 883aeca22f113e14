//! Answers the admin API's requests.

use std::{net::SocketAddr, pin::pin, time::Duration};

use bytes::Bytes;
use faasw_abi::files::upload;
use faasw_client::{
    FunctionLimits, FunctionOptions, LogPage, NodeInfo, OPTIONS_BYTES, OPTIONS_FIELD, Problem,
    query,
};
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header, request::Parts,
};
use http_body::Body as _;
use serde::Serialize;

use super::{
    metrics,
    uploads::{UploadLimiter, UploadPermit},
};
use crate::{
    failure::{Audience, Failure},
    message::{self, Body, Correlation, RequestRejection},
    node::Node,
    server::{Handler, RequestBodyStream},
};

/// Maximum time for a client to send a module. Waiting costs nothing, because the client is the
/// node's own operator.
const MODULE_TIME: Duration = Duration::from_secs(600);

/// Maximum number of bytes of files in front of a module.
const FILES_MAX: usize = upload::FILES_MAX as usize + 64;

/// The prefix of faasw's own header fields.
const FIELD_PREFIX: &str = "x-faasw-";

/// Time for which a request waits for a log line. The client then sends the request again.
const LOG_WAIT: Duration = Duration::from_secs(30);

/// Answers the requests of the admin socket.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(super) node: Node,
    gateway: Option<SocketAddr>,
    uploads: UploadLimiter,
}

/// The result of a handler: a response, or a problem that becomes one.
pub(super) type HandlerResult = Result<Response<Body>, Problem>;

impl Handler for Api {
    async fn answer(
        self,
        request: Request<RequestBodyStream>,
        correlation: Correlation,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let head_only = parts.method == Method::HEAD;
        let refused = |problem: Problem| problem.response(correlation.request_id, head_only);
        self.dispatch(&parts, body, &correlation)
            .await
            .unwrap_or_else(refused)
    }
}

impl Api {
    /// Returns an API for `node`, whose gateway listens at `gateway`.
    pub(crate) fn new(node: Node, gateway: Option<SocketAddr>) -> Self {
        let largest = node.limits().module.saturating_add(FILES_MAX);
        Self {
            node,
            gateway,
            uploads: UploadLimiter::new(largest),
        }
    }

    async fn dispatch(
        &self,
        parts: &Parts,
        body: RequestBodyStream,
        correlation: &Correlation,
    ) -> HandlerResult {
        if (&parts.method, parts.uri.path()) == (&Method::GET, "/metrics") {
            return Ok(metrics::response(self.node.metrics()));
        }
        let path = parts.uri.path().strip_prefix("/v1/").unwrap_or_default();
        let segments: Vec<&str> = path.split('/').collect();
        match (&parts.method, segments.as_slice()) {
            (&Method::GET, ["node"]) => self.node_info(),
            (&Method::GET, ["stats"]) => json(&self.node.stats()),
            (&Method::GET, ["tree"]) => json(&self.node.tree()),
            (&Method::GET, ["deployments"]) => json(&self.node.deployments()),
            (&Method::GET, ["functions"]) => json(&self.node.list()),
            (&Method::PUT, ["functions", name]) => self.deploy(name, parts, body).await,
            (&Method::GET, ["functions", name]) => self.inspect(name).await,
            (&Method::DELETE, ["functions", name]) => self.remove(name).await,
            (&Method::POST, ["functions", name, "rollback"]) => {
                self.rollback(name, &parts.uri).await
            }
            (&Method::POST, ["functions", name, "invoke"]) => {
                self.invoke(name, parts, body, correlation).await
            }
            (&Method::GET, ["engines"]) => json(&self.node.engines()),
            (&Method::PUT, ["engines", name]) => self.add_engine(name, &parts.uri, body).await,
            (&Method::DELETE, ["engines", name]) => {
                let removed = self.node.remove_engine(name).await;
                removed.map_err(|error| error.problem())?;
                Ok(no_content())
            }
            (&Method::POST, ["engines", name, "warm"]) => {
                let engine = self.node.warm_engine(name).await;
                json(&engine.map_err(|error| error.problem())?)
            }
            (&Method::GET, ["functions", name, "image"]) => {
                let image = self.node.image(name).await;
                json(&image.map_err(|error| error.problem().of_function(name))?)
            }
            (&Method::GET, ["functions", name, "export"]) => self.export(name).await,
            (&Method::POST, ["import"]) => self.import(&parts.uri, body).await,
            (&Method::GET, ["kv"]) => self.stores().await,
            (&Method::GET, ["kv", kind, name]) => self.store_keys(kind, name, &parts.uri).await,
            (&Method::GET, ["kv", kind, name, "value"]) => {
                self.store_value(kind, name, &parts.uri).await
            }
            (&Method::PUT, ["kv", kind, name, "value"]) => {
                self.set_store_value(kind, name, &parts.uri, body).await
            }
            (&Method::DELETE, ["kv", kind, name, "value"]) => {
                self.remove_store_key(kind, name, &parts.uri).await
            }
            (&Method::GET, ["secrets"]) => self.secrets(None).await,
            (&Method::GET, ["secrets", function]) => self.secrets(Some(function)).await,
            (&Method::PUT, ["secrets", function, "value"]) => {
                self.set_secret(function, &parts.uri, body).await
            }
            (&Method::DELETE, ["secrets", function, "value"]) => {
                self.remove_secret(function, &parts.uri).await
            }
            (&Method::GET, ["functions", name, "logs"]) => self.logs(name, &parts.uri).await,
            (
                _,
                [
                    "node" | "deployments" | "functions" | "engines" | "stats" | "tree" | "import"
                    | "kv" | "secrets",
                ]
                | ["secrets", _]
                | ["secrets", _, "value"]
                | ["kv", _, _]
                | ["kv", _, _, "value"]
                | ["functions" | "engines", _]
                | ["engines", _, "warm"]
                | [
                    "functions",
                    _,
                    "export" | "image" | "invoke" | "logs" | "rollback",
                ],
            ) => Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "wrong-method",
                "Wrong method",
                format!("{} is not for {}", parts.method, parts.uri.path()),
            )),
            _ => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "unknown-path",
                "No such path",
                format!("the admin API has no {}", parts.uri.path()),
            )),
        }
    }

    fn node_info(&self) -> HandlerResult {
        let limits = self.node.limits();
        json(&NodeInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            address: self.gateway,
            data_dir: self.node.data_dir().unwrap_or(".".as_ref()).into(),
            functions: self.node.function_count(),
            module_limit: limits.module,
            options_limit: OPTIONS_BYTES,
            defaults: FunctionLimits {
                memory: limits.memory,
                times: limits.of_request(&FunctionOptions::default()),
            },
        })
    }

    async fn deploy(&self, name: &str, parts: &Parts, body: RequestBodyStream) -> HandlerResult {
        let options = options_of(parts)?;
        let limit = self.node.limits().module.saturating_add(FILES_MAX);
        let (module, _upload) = self.upload(body, limit).await?;
        let deployed = self.node.deploy(name, module, options).await;
        json(&deployed.map_err(|error| error.problem().of_function(name))?)
    }

    async fn add_engine(&self, name: &str, uri: &Uri, body: RequestBodyStream) -> HandlerResult {
        let extensions = query::read_extensions(uri.query()).map_err(bad_query)?;
        let (component, _upload) = self.upload(body, self.node.limits().module).await?;
        let engine = self.node.add_engine(name, component, extensions).await;
        json(&engine.map_err(|error| error.problem())?)
    }

    /// Receives an upload of at most `limit` bytes. Returns it with its slot among all uploads,
    /// which the caller keeps until it has processed the upload.
    async fn upload(
        &self,
        body: RequestBodyStream,
        limit: usize,
    ) -> Result<(Bytes, UploadPermit), Problem> {
        // A body without a length may be as long as the limit.
        let announced = body.size_hint().exact();
        let announced = announced.map_or(limit, |bytes| usize::try_from(bytes).unwrap_or(limit));
        let place = match self.uploads.begin(announced.min(limit)) {
            Ok(place) => place,
            Err(problem) => {
                // A client that sends the whole body before it reads the response must still
                // receive it.
                message::discard(body).await;
                return Err(problem);
            }
        };
        let module = message::collect(body, limit, MODULE_TIME, false).await;
        let module = module.map_err(|unfit| match unfit {
            RequestRejection::BodyTooLarge(limit) => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "module-too-large",
                "The module is too large",
                format!("it is larger than the limit of {limit} bytes"),
            ),
            other => Failure::from(other).problem(Audience::Operator),
        })?;
        Ok((module, place))
    }

    async fn export(&self, name: &str) -> HandlerResult {
        let export = self.node.export(name).await;
        let export = export.map_err(|error| error.problem().of_function(name))?;
        let mut response = Response::new(export);
        let bytes = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, bytes);
        Ok(response)
    }

    async fn import(&self, uri: &Uri, body: RequestBodyStream) -> HandlerResult {
        let name = query::read_parameter(uri.query(), "name").map_err(bad_query)?;
        let mut export = pin!(body);
        let imported = self.node.parts.deployer.import(export.as_mut(), name).await;
        if imported.is_err() {
            // A client that sends the whole body before it reads the response must still receive
            // the error.
            message::discard(export).await;
        }
        json(&imported.map_err(|error| error.problem())?)
    }

    async fn remove(&self, name: &str) -> HandlerResult {
        self.node
            .remove(name)
            .await
            .map_err(|error| error.problem().of_function(name))?;
        Ok(no_content())
    }

    /// Invokes a function. The response is the function's own, even if it is a problem.
    async fn invoke(
        &self,
        name: &str,
        parts: &Parts,
        body: RequestBodyStream,
        correlation: &Correlation,
    ) -> HandlerResult {
        let asked = query::read_invocation(parts.uri.query()).map_err(bad_query)?;
        let mut request = Request::builder()
            .method(asked.method.as_str())
            .uri(asked.path)
            .body(body)
            .map_err(|error| bad_query(error.to_string()))?;
        *request.headers_mut() = parts.headers.clone();
        request.extensions_mut().insert(message::FromOperator);
        let dispatcher = &self.node.parts.dispatcher;
        let follow = dispatcher.follow(&request, correlation);
        let answering = dispatcher.invoke(name, request, correlation, follow);
        Ok(answering.await)
    }

    async fn inspect(&self, name: &str) -> HandlerResult {
        let details = self.node.inspect(name).await;
        json(&details.map_err(|error| error.problem().of_function(name))?)
    }

    async fn rollback(&self, name: &str, uri: &Uri) -> HandlerResult {
        let version = query::read_parameter(uri.query(), "version").map_err(bad_query)?;
        let function = self.node.rollback(name, version).await;
        json(&function.map_err(|error| error.problem().of_function(name))?)
    }

    async fn logs(&self, name: &str, uri: &Uri) -> HandlerResult {
        let asked = query::read_lines(uri.query()).map_err(bad_query)?;
        let inspector = &self.node.parts.inspector;
        let page = inspector.log_page(name, asked.newest, asked.after);
        let page = match tokio::time::timeout(LOG_WAIT, page).await {
            Ok(page) => page.map_err(|error| error.problem().of_function(name))?,
            Err(_) => LogPage::empty(asked.after.unwrap_or_default()),
        };
        json(&page)
    }
}

/// Returns the options of a deployment.
fn options_of(parts: &Parts) -> Result<FunctionOptions, Problem> {
    if parts.uri.query().is_some() {
        let detail = format!("options of a deployment are in the field {OPTIONS_FIELD}");
        return Err(bad_query(detail));
    }
    // Without this check, a misspelt name would deploy the function with the default options.
    let is_unknown =
        |name: &&HeaderName| name.as_str().starts_with(FIELD_PREFIX) && **name != OPTIONS_FIELD;
    if let Some(unknown) = parts.headers.keys().find(is_unknown) {
        let unknown = unknown.as_str();
        return Err(bad_options(format!(
            "a deployment has no field {unknown:.80}; its options are in the field {OPTIONS_FIELD}"
        )));
    }
    let mut fields = parts.headers.get_all(OPTIONS_FIELD).iter();
    let options = match (fields.next(), fields.next()) {
        (None, _) => Ok(FunctionOptions::default()),
        (Some(json), None) => FunctionOptions::from_json(json.as_bytes()),
        (Some(_), Some(_)) => Err("it occurs twice".to_owned()),
    };
    options.map_err(|why| bad_options(format!("{OPTIONS_FIELD}: {why}")))
}

fn bad_options(detail: String) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "bad-options",
        "Not valid options",
        detail,
    )
}

pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

pub(super) fn json(value: &impl Serialize) -> HandlerResult {
    let mut text = serde_json::to_vec(value).map_err(|error| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "platform-failure",
            "The node failed",
            format!("the answer cannot be written: {error}"),
        )
    })?;
    text.push(b'\n');
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

pub(super) fn bad_query(detail: String) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "bad-query",
        "Not a valid query",
        detail,
    )
}
