//! What functions may reach: grants as they are spelled, and addresses that nobody may have.
//!
//! Two questions, asked by two processes:
//! - the node, of each request: is its scheme, host and port granted? ([`Grant::allows`])
//! - the connector, of each address that a name has, or that a request names: may anybody be
//!   connected to it? ([`AllowPrivate::permits`])
//!
//! A grant of an address lifts nothing by itself: an operator says what is private, not who
//! deploys. Whatever a reader of URLs would have to guess (user information, a path, other
//! spellings of an address) is refused, in a grant and in a request alike: no two readers can then
//! disagree. What goes to the node's own functions ([`Destination::own`]) leaves it never, and is
//! granted apart. There is no I/O here. See `docs/decisions/0026-reaching-out.md`.

#![forbid(unsafe_code)]

mod destination;
mod grant;
mod hidden;
mod host;
mod metadata;
mod own;
mod private;
mod special;

pub use destination::{Destination, RequestError, Scheme};
pub use grant::{Grant, GrantError};
pub use host::{Host, HostError, NAME_MAX, Name};
pub use metadata::{METADATA_SERVICES, MetadataService};
pub use own::Own;
pub use private::{AllowPrivate, NetworkError, Prohibited};
pub use special::{SPECIAL_V4, SPECIAL_V6, Special};
