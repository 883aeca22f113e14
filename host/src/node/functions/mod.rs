//! The functions of a node, and what belongs to each of them.
//!
//! While the node runs, the [`FunctionTable`] is authoritative, and the registry follows it. A
//! [`Function`] is one version; another entry in the table replaces it. Requests under way keep
//! the version that they started with.

mod function;
mod outbound_grants;
mod slots;
mod table;
mod version_secrets;

pub(super) use self::{
    function::{Function, VersionCell},
    outbound_grants::{OutboundGrants, makes_requests},
    slots::RequestSlot,
    table::FunctionTable,
    version_secrets::{OpenedSecrets, VersionSecrets, reads_configuration},
};
