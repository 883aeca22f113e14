//! Hosts that are the node itself.
//!
//! The names are Spin's, whose components have them already: of its *self requests* and its *local
//! service chaining*. No name server is asked for any of them, granted or not.

use crate::{Destination, Host, Name, Scheme};

/// All functions of the node, found by path. Spin's SDKs write the second one.
const ALL: [&str; 2] = ["self", "self.alt"];

/// What the names of single functions are below.
const DOMAIN: &str = "spin.internal";

/// What a request to the node itself is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own<'a> {
    /// One of all functions: the first part of the path is its name.
    ByPath,
    /// The function of this name, if there is one, and all of the path is its own.
    Function(&'a str),
}

impl Destination {
    /// What a request is for that goes to the node itself; nothing where it goes elsewhere.
    #[must_use]
    pub fn own(&self) -> Option<Own<'_>> {
        match &self.host {
            Host::Name(name) if name.is_all() => Some(Own::ByPath),
            Host::Name(name) => name.function().map(Own::Function),
            Host::Address(_) => None,
        }
    }

    /// Where a request goes that names nobody: to the node's own functions.
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
    /// Whether it stands for all functions of the node.
    pub(crate) fn is_all(&self) -> bool {
        ALL.contains(&self.as_str())
    }

    /// The part that names a function of the node. That there is none of this name, or that it
    /// cannot be one, is not looked at: it is no name of anybody else.
    pub(crate) fn function(&self) -> Option<&str> {
        let before = self.as_str().strip_suffix(DOMAIN)?;
        match before {
            "" => Some(before),
            _ => before.strip_suffix('.'),
        }
    }

    /// Whether it is of the node itself.
    pub(crate) fn is_own(&self) -> bool {
        self.is_all() || self.function().is_some()
    }
}
