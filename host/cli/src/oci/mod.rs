//! `push`, `pull` and `deploy oci://…`: modules as artifacts in registries.
//!
//! All of this happens in the process of the user's command. A node receives a module and options,
//! as with any deployment.

mod annotations;
mod deploy;
mod follow;
mod permissions;
mod pull;
mod push;
mod target;

use std::{fs, path::Path};

use faasw_oci::{Access, OciError, Reference, Registry, credentials::Files, registry::Action};

use super::{
    args::{Registries, reference},
    exit::Exit,
};

pub use deploy::deploy;
pub use pull::pull;
pub use push::push;

/// The prefix that distinguishes an artifact's reference from a file.
const SCHEME: &str = "oci://";

/// Returns the reference that takes the place of a file, if there is one.
///
/// # Errors
/// Returns a usage error if the reference is invalid.
pub fn reference_in(file: &Path) -> Result<Option<Reference>, Exit> {
    let text = file.to_str().filter(|text| text.starts_with(SCHEME));
    let read = text.map(reference).transpose();
    read.map_err(|why| Exit::usage(format_args!("{}: {why}", file.display())))
}

/// Returns a client of the repository of a reference, with the stored login.
async fn registry(of: &Reference, action: Action, given: &Registries) -> Result<Registry, Exit> {
    let mut access = Access::default().plain_http(given.plain_http);
    if let Some(time) = given.registry_timeout {
        access = access.stall(time);
    }
    for host in &given.token_hosts {
        access = access.token_host(host);
    }
    if let Some(file) = &given.ca {
        let failed = |error: &dyn std::fmt::Display| {
            Exit::failure(format_args!("--ca {}: {error}", file.display()))
        };
        let pem = fs::read(file).map_err(|error| failed(&error))?;
        access = access.authorities(&pem).map_err(|error| failed(&error))?;
    }
    let credential = Files::of_user().find(of).await.map_err(Exit::failure)?;
    Ok(Registry::new(of, action, access, credential)?)
}

impl From<OciError> for Exit {
    fn from(error: OciError) -> Self {
        let exit = Self::failure(&error);
        match &error {
            OciError::Unauthorized { registry, .. } => exit.hint(format_args!(
                "log in with: docker login {registry}, or: podman login {registry}"
            )),
            OciError::Realm { realm, .. } => {
                let host = realm.split(':').next().unwrap_or(realm);
                exit.hint(format_args!(
                    "if this token server is correct: --token-host {host}"
                ))
            }
            OciError::Connection { why, .. } if why.contains("certificate") => {
                exit.hint("to trust another authority: --ca FILE")
            }
            _ => exit,
        }
    }
}
