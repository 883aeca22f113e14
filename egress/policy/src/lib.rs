//! The policy for outbound calls: grants as they are spelled, and addresses that no function may
//! reach.
//!
//! Two processes make two decisions:
//! - the node, for each request: are its scheme, host and port granted? ([`Grant::allows`])
//! - the connector, for each address of a name, or in a request: is a connection to it permitted?
//!   ([`AllowPrivate::permits`])
//!
//! A grant of an address does not open that address: the operator decides which private networks
//! are reachable, not the person who deploys. Spellings that a URL parser would have to guess (user
//! information, a path, other spellings of an address) are rejected in grants and in requests
//! alike, so that no two parsers can disagree. Requests to the node's own functions
//! ([`Destination::own`]) never leave the node, and are granted separately. There is no I/O here.
//! See `docs/decisions/0026-reaching-out.md`.

#![forbid(unsafe_code)]

mod destination;
mod embedded_ipv4;
mod grant;
mod host;
mod metadata;
mod node_target;
mod private;
mod special;

pub use destination::{Destination, RequestError, Scheme};
pub use grant::{Grant, GrantError};
pub use host::{Host, HostError, NAME_MAX, Name};
pub use metadata::{METADATA_SERVICES, MetadataService};
pub use node_target::NodeTarget;
pub use private::{AllowPrivate, NetworkError, Prohibited};
pub use special::{SPECIAL_V4, SPECIAL_V6, Special};
