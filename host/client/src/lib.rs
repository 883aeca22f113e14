//! The admin API of a node: the types of its requests, answers and failures, and a client. The
//! node's side is in `faasw`, which uses the same types.
//!
//! The API is HTTP with JSON on a Unix socket in the data directory ([`admin_socket`]).
//!
//! | request | does |
//! | --- | --- |
//! | `GET /v1/node` | describes the node: [`NodeInfo`] |
//! | `GET /v1/functions` | lists functions, in short: [`FunctionBrief`]s |
//! | `PUT /v1/functions/NAME` | deploys the body, options in [`OPTIONS_FIELD`]: [`DeployOutcome`] |
//! | `GET /v1/functions/NAME` | returns a function and its versions: [`FunctionDetails`] |
//! | `POST /v1/functions/NAME/rollback?version=…` | makes a version current, or the one before: [`FunctionInfo`] |
//! | `GET /v1/functions/NAME/image` | reads and describes the whole image of its seed: [`ImageInfo`] |
//! | `GET /v1/functions/NAME/export` | returns module, options and image, sealed for nodes with the same key |
//! | `POST /v1/import?name=…` | deploys a function from an export in the body: [`ImportOutcome`] |
//! | `DELETE /v1/functions/NAME` | removes a function |
//! | `POST /v1/functions/NAME/invoke?path=…&method=…` | invokes the function and returns its response |
//! | `GET /v1/functions/NAME/logs?lines=…` | returns the newest log lines: a [`LogPage`] |
//! | `GET /v1/functions/NAME/logs?after=…` | returns the log lines after a place; waits for one for at most 30 s |
//! | `GET /v1/deployments` | lists deployments in progress with their stages: [`DeploymentInfo`]s |
//! | `GET /v1/engines` | lists language engines: [`EngineInfo`]s |
//! | `PUT /v1/engines/NAME?extension=…` | adds the body as an engine for scripts with these extensions: [`EngineInfo`] |
//! | `POST /v1/engines/NAME/warm` | makes the engine's code and seed in advance: [`EngineInfo`] |
//! | `DELETE /v1/engines/NAME` | removes an engine; deployed scripts keep it |
//! | `GET /v1/kv` | lists the key-value stores that have keys: [`StoreInfo`]s |
//! | `GET /v1/kv/functions/NAME?after=…` | lists keys of a function's own store after a key: [`StoreKeys`]; `shared/NAME` is a shared store |
//! | `GET /v1/kv/functions/NAME/value?key=…` | returns the value of a key; 204 if there is none |
//! | `PUT /v1/kv/functions/NAME/value?key=…` | sets the key to the body, on disk |
//! | `DELETE /v1/kv/functions/NAME/value?key=…` | removes the key, on disk |
//! | `GET /v1/secrets` | lists all secrets without their values: [`SecretInfo`]s; `GET /v1/secrets/NAME` those of one function |
//! | `PUT /v1/secrets/NAME/value?name=…` | sets a function's secret to the body, on disk |
//! | `DELETE /v1/secrets/NAME/value?name=…` | removes a secret, on disk |
//! | `GET /v1/tree` | returns the tree of seeds: [`SeedInfo`]s, parents first |
//! | `GET /v1/stats` | summarises the metrics since the start: a [`NodeSummary`] |
//! | `GET /metrics` | returns the metrics as OpenMetrics text |
//!
//! A deployment's options are JSON in a header field ([`FunctionOptions::from_json`]), without line
//! breaks:
//!
//! ```sh
//! curl --unix-socket DATA_DIR/faasw.sock -T hello.wasm http://localhost/v1/functions/hello \
//!     -H 'x-faasw-options: {"memory": 67108864, "stores": ["users"]}'
//! ```
//!
//! Failures have problem bodies. A process that can open the socket can do everything. The modes of
//! the socket and of its directory restrict that to the node's user.

mod checked_name;
mod client;
mod deployment;
mod digest;
mod engine;
mod function;
mod host_name;
mod key_value;
mod log;
mod name;
mod node;
mod options;
mod outbound;
mod problem;
pub mod query;
mod request_id;
mod request_limits;
mod secret;
pub mod spelling;
mod stats;
mod store_name;
mod trace_context;
mod warm_up;

pub use client::{Client, ClientError, admin_socket};
pub use deployment::{DeployStage, DeploymentInfo};
pub use digest::{Digest, DigestError};
pub use engine::{EXTENSIONS_MAX, EngineInfo, EngineUse, Extension, ExtensionError};
pub use faasw_abi::wire::FunctionKind;
pub use faasw_common::{
    FreezePolicy, ImageInfo, ImagePages, ImageWorkingSet, LogStream, SeedInfo, SetReuse,
    ShortfallCause, WarmShortfall,
};
pub use function::{
    DeployOutcome, FilesInfo, FunctionBrief, FunctionDetails, FunctionInfo, ImportOutcome,
    Initialisation,
};
pub use host_name::{HostName, HostNameError};
pub use key_value::{STORE_PAGE, STORE_VALUE_BYTES, Store, StoreInfo, StoreKeys};
pub use log::{LogLine, LogPage};
pub use name::{FunctionName, NameError};
pub use node::{FunctionLimits, NodeInfo};
pub use options::{
    CONFIGURATION_BYTES, FunctionOptions, OPTIONS_BYTES, OPTIONS_FIELD, OptionValue, OptionsError,
};
pub use outbound::Outbound;
pub use problem::{Problem, ProblemBody, ProblemSlug};
pub use request_id::{RequestId, RequestIdError};
pub use request_limits::{RequestLimits, TimeLimit};
pub use secret::{SECRET_BYTES, SecretInfo, SecretName, SecretNameError};
pub use stats::{FunctionSummary, GroupSummary, NodeSummary, StageSummary, ZygoteSummary};
pub use store_name::{StoreName, StoreNameError};
pub use trace_context::TraceContext;
pub use warm_up::{WarmUpError, WarmUpRequest};
