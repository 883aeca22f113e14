//! Registries that lie, cut off, hang, never end, or want to be shown what is not theirs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod logins;
mod server;
mod transfers;
mod uploads;

use std::time::Duration;

use faasw_client::Digest;
use faasw_oci::{
    Access, Artifact, OciError, Reference, Registry, artifact::WASM_LAYER, credentials::Credential,
    registry::Action,
};

use server::{Answer, ReceivedRequest, Server};

/// A module, as far as anybody looks at it here.
pub(crate) const MODULE: &[u8] = b"\0asm\x01\0\0\0 and more";

/// More than any module here has.
pub(crate) const LIMIT: u64 = 1 << 20;

/// How long silence is listened to here.
pub(crate) const STALL: Duration = Duration::from_millis(400);

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Digest::of(bytes))
}

/// A manifest that has this as its module, and says of it what it is.
pub(crate) fn manifest_of(module: &[u8]) -> String {
    manifest(&digest(module), module.len() as u64)
}

pub(crate) fn manifest(digest: &str, size: u64) -> String {
    format!(
        r#"{{"schemaVersion": 2,
            "config": {{"mediaType": "application/vnd.oci.empty.v1+json",
                "digest": "{digest}", "size": 2}},
            "layers": [{{"mediaType": "{WASM_LAYER}", "digest": "{digest}", "size": {size}}}]}}"#
    )
}

pub(crate) fn is_manifest(request: &ReceivedRequest) -> bool {
    request.path.starts_with("/v2/team/app/manifests/")
}

pub(crate) fn is_blob(request: &ReceivedRequest) -> bool {
    request.path.starts_with("/v2/team/app/blobs/")
}

/// A registry that has [`MODULE`].
pub(crate) async fn good() -> Server {
    Server::start(|request| match (is_manifest(request), is_blob(request)) {
        (true, _) => Answer::ok(manifest_of(MODULE)),
        (_, true) => Answer::ok(MODULE),
        _ => Answer::of(404),
    })
    .await
}

pub(crate) fn reference(server: &Server) -> Reference {
    format!("{}/team/app:v1", server.address).parse().unwrap()
}

pub(crate) fn registry(
    server: &Server,
    action: Action,
    credential: Option<Credential>,
) -> Registry {
    let access = Access::default().stall(STALL);
    Registry::new(&reference(server), action, access, credential).unwrap()
}

/// Pulls what the server has.
pub(crate) async fn pull(
    server: &Server,
    credential: Option<Credential>,
) -> Result<Vec<u8>, OciError> {
    let registry = registry(server, Action::Pull, credential);
    let artifact = Artifact::find(&registry, reference(server).tag_or_digest()).await?;
    Ok(artifact.module(&registry, LIMIT).await?.to_vec())
}

pub(crate) fn password() -> Option<Credential> {
    Some(Credential::Password {
        user: "me".to_owned(),
        password: "hush".to_owned(),
    })
}

/// `me:hush`, as it is shown.
pub(crate) const SHOWN: &str = "Basic bWU6aHVzaA==";
