//! The code of functions and language engines: compiled by the backend, stored in the registry.
//!
//! [`CodeStore`] compiles code, stores it and loads it. [`DeployableCode`] is code that seeds are
//! made of.

mod deployable;
mod store;

pub(super) use self::{
    deployable::{CodeOwner, DeployableCode},
    store::CodeStore,
};
