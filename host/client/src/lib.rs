//! What the admin API of a node says: what is asked, what is answered, how failures look,
//! and a client. A node's own side is in `faasw`, which uses the same types.
//!
//! The API is HTTP with JSON on a Unix socket in the data directory ([`admin_socket`]).
//!
//! | request | does |
//! | --- | --- |
//! | `GET /v1/node` | tells about the node: [`NodeInfo`] |
//! | `GET /v1/functions` | lists functions, in short: [`FunctionBrief`]s |
//! | `PUT /v1/functions/NAME?…` | deploys the body: [`Deployed`] |
//! | `GET /v1/functions/NAME` | one with its versions: [`FunctionDetails`] |
//! | `POST /v1/functions/NAME/rollback?version=…` | goes back to a version, or the one before: [`FunctionInfo`] |
//! | `GET /v1/functions/NAME/image` | what the image of its seed has, all of which is read: [`ImageInfo`] |
//! | `GET /v1/functions/NAME/export` | module, options and image, sealed for nodes with the same key |
//! | `POST /v1/import?name=…` | makes a function of the body, which is such an export: [`Imported`] |
//! | `DELETE /v1/functions/NAME` | removes a function |
//! | `POST /v1/functions/NAME/invoke?path=…&method=…` | invokes it: its response |
//! | `GET /v1/functions/NAME/logs?lines=…` | its newest log lines: a [`LogPage`] |
//! | `GET /v1/functions/NAME/logs?after=…` | those after a place; waits for one for at most 30 s |
//! | `GET /v1/deployments` | lists deployments under way, and what each does or waits for: [`DeploymentInfo`]s |
//! | `GET /v1/engines` | lists language engines: [`EngineInfo`]s |
//! | `PUT /v1/engines/NAME?extension=…` | adds the body as an engine for scripts of these names: [`EngineInfo`] |
//! | `POST /v1/engines/NAME/warm` | has its code and its seed made ahead: [`EngineInfo`] |
//! | `DELETE /v1/engines/NAME` | removes an engine; scripts that are deployed keep it |
//! | `GET /v1/kv` | lists the key-value stores that have anything: [`StoreInfo`]s |
//! | `GET /v1/kv/functions/NAME?after=…` | keys of a function's own store, behind one: [`StoreKeys`]; `shared/NAME` is a shared one's |
//! | `GET /v1/kv/functions/NAME/value?key=…` | the value of a key; 204 where there is none |
//! | `PUT /v1/kv/functions/NAME/value?key=…` | sets it to the body, on disk |
//! | `DELETE /v1/kv/functions/NAME/value?key=…` | removes it, on disk |
//! | `GET /v1/secrets` | lists functions' secrets, never what they are: [`SecretInfo`]s; `GET /v1/secrets/NAME` one function's |
//! | `PUT /v1/secrets/NAME/value?name=…` | sets a function's secret to the body, on disk |
//! | `DELETE /v1/secrets/NAME/value?name=…` | removes one, on disk |
//! | `GET /v1/tree` | the tree of seeds: [`SeedInfo`]s, parents first |
//! | `GET /v1/stats` | what the node has done since it started: a [`Summary`] |
//! | `GET /metrics` | metrics as OpenMetrics text |
//!
//! Options of a deployment are `memory` (bytes), `concurrency`, `poll` (`off`, `auto` or a time),
//! `freeze`, `init` (an export), `warmup-request` (any number of times), the times `cpu-time`,
//! `timeout`, `idle-client`, `idle-guest` and `total-time` (as `500ms` or `10s`) and, any number of
//! times, `env` (`NAME=VALUE`), `config` (`KEY=VALUE`), `kv` (a shared store), `secret` (its name),
//! `bind-secret` (`NAME=HOST`) and `allow-outbound` (a grant); `source` says where it came from,
//! and is shown. Failures are problem bodies. Who may open the socket may do everything; its mode
//! and its directory's leave that to the node's user.

mod client;
mod deployment;
mod digest;
mod engine;
mod function;
mod host_name;
pub mod key_value;
mod log;
mod name;
mod node;
mod options;
mod outbound;
mod problem;
pub mod query;
mod request_id;
mod secret;
pub mod spelling;
mod stats;
mod store_name;
mod times;
mod trace_context;
mod warm_up;

pub use client::{Client, ClientError, admin_socket};
pub use deployment::{DeployStage, DeploymentInfo};
pub use digest::{Digest, DigestError};
pub use engine::{EXTENSIONS_MAX, EngineInfo, EngineUse, Extension, ExtensionError};
pub use faasw_abi::wire::FunctionKind;
pub use faasw_common::{
    FreezePolicy, ImageInfo, ImagePages, ImageWorkingSet, Lack, Lacking, LogStream, SeedInfo,
    SetReuse,
};
pub use function::{
    Deployed, FilesInfo, FunctionBrief, FunctionDetails, FunctionInfo, Imported, Initialised,
};
pub use host_name::{HostName, HostNameError};
pub use key_value::{STORE_PAGE, STORE_VALUE_BYTES, Store, StoreInfo, StoreKeys};
pub use log::{LogLine, LogPage};
pub use name::{FunctionName, NameError};
pub use node::{FunctionLimits, NodeInfo};
pub use options::{CONFIGURATION_BYTES, FunctionOptions, OptionsError};
pub use outbound::Outbound;
pub use problem::{Problem, ProblemBody, ProblemSlug};
pub use request_id::{RequestId, RequestIdError};
pub use secret::{SECRET_BYTES, SecretInfo, SecretName, SecretNameError};
pub use stats::{FunctionSummary, GroupSummary, StageSummary, Summary, ZygoteSummary};
pub use store_name::{StoreName, StoreNameError};
pub use times::{RequestLimits, TimeLimit};
pub use trace_context::TraceContext;
pub use warm_up::{WarmUpError, WarmUpRequest};
