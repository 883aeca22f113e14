//! Hosts that stand for the node itself.
//!
//! The names are Spin's, so that its components already use them, for *self requests* and *local
//! service chaining*. No name server is queried for any of them, whether granted or not.

use crate::{Destination, Host, Name, Scheme};

/// Names for all functions of the node, which the path selects. Spin's SDKs use the second one.
const ALL: [&str; 2] = ["self", "self.alt"];

/// The parent domain of the names of single functions.
const DOMAIN: &str = "spin.internal";

/// The target of a request to the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeTarget<'a> {
    /// Any function: the first segment of the path is its name.
    ByPath,
    /// The function of this name, if there is one. The whole path belongs to the function.
    Function(&'a str),
}

impl Destination {
    /// Returns the target of a request to the node itself; `None` if the request leaves the node.
    #[must_use]
    pub fn own(&self) -> Option<NodeTarget<'_>> {
        match &self.host {
            Host::Name(name) if name.is_all() => Some(NodeTarget::ByPath),
            Host::Name(name) => name.function().map(NodeTarget::Function),
            Host::Address(_) => None,
        }
    }

    /// Returns the destination of requests to the node's own functions that name no host.
    #[must_use]
    pub fn of_node() -> Self {
        let [name, _] = ALL;
        Self {
            scheme: Scheme::Http,
            host: Host::Name(Name::of_node(name)),
            port: Scheme::Http.default_port(),
        }
    }
}

impl Name {
    /// Returns whether the name stands for all functions of the node.
    pub(crate) fn is_all(&self) -> bool {
        ALL.contains(&self.as_str())
    }

    /// Returns the part of the name that names a function of the node. It does not check whether
    /// such a function can exist: the domain belongs to the node in any case.
    pub(crate) fn function(&self) -> Option<&str> {
        let before = self.as_str().strip_suffix(DOMAIN)?;
        match before {
            "" => Some(before),
            _ => before.strip_suffix('.'),
        }
    }

    /// Returns whether the name stands for the node itself.
    pub(crate) fn is_own(&self) -> bool {
        self.is_all() || self.function().is_some()
    }
}
