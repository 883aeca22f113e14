//! The part of the distribution protocol that transfers of modules need.
//!
//! `exchange` sends requests and follows redirects, `body` transfers bodies, `log_in` obtains
//! authorization, and `upload` pushes. `failure` has the errors of connections.

mod body;
mod exchange;
mod failure;
mod log_in;
mod upload;

use std::fs::File;

use bytes::Bytes;
use faasw_client::Digest;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::{Client, Url};
use tokio::sync::Mutex;

use crate::{
    Access, OciError, Reference,
    credentials::Credential,
    reference::{TagOrDigest, digest_text, parse_digest},
};
use exchange::RegistryRequest;

/// Maximum size of a manifest in bytes. The distribution specification requires registries to
/// accept this size.
pub const MANIFEST_MAX: u64 = 4 << 20;

/// The header field in which registries state the digest of a content.
const CONTENT_DIGEST: &str = "docker-content-digest";

/// The accepted media types of manifests.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// The intended use of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reading from the repository.
    Pull,
    /// Adding to the repository.
    Push,
}

/// A client of one repository of a registry.
#[derive(Debug)]
pub struct Registry {
    client: Client,
    access: Access,
    reference: Reference,
    base: Url,
    action: Action,
    credential: Option<Credential>,
    /// The `Authorization` header, once the registry has required one.
    shown: Mutex<Option<HeaderValue>>,
}

/// A manifest whose digest is verified.
#[derive(Debug)]
pub struct Manifest {
    /// The bytes of the manifest.
    pub bytes: Bytes,
    /// The digest of these bytes.
    pub digest: Digest,
}

/// The digest and size of a blob, as a manifest states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The digest of the blob.
    pub digest: Digest,
    /// The size in bytes.
    pub bytes: u64,
}

impl Registry {
    /// Creates a client of the repository of a reference. Does not connect yet.
    ///
    /// # Errors
    /// Returns [`OciError::Client`] if the HTTP client cannot be created.
    pub fn new(
        reference: &Reference,
        action: Action,
        access: Access,
        credential: Option<Credential>,
    ) -> Result<Self, OciError> {
        Ok(Self {
            client: access.client(reference)?,
            base: access.base(reference)?,
            access,
            reference: reference.clone(),
            action,
            credential,
            shown: Mutex::new(None),
        })
    }

    fn address(&self, kind: &str, which: &str) -> Result<Url, OciError> {
        // The parts contain no characters with a special meaning in a URL.
        let path = format!("v2/{}/{kind}/{which}", self.reference.repository());
        let joined = self.base.join(&path);
        joined.map_err(|error| OciError::protocol(self.reference.registry(), error))
    }

    fn manifest_address(&self, which: &TagOrDigest) -> Result<Url, OciError> {
        match which {
            TagOrDigest::Tag(tag) => self.address("manifests", tag),
            TagOrDigest::Digest(digest) => self.address("manifests", &digest_text(*digest)),
        }
    }

    /// Returns the digest of the manifest to which a tag or a digest leads now.
    ///
    /// # Errors
    /// Returns [`OciError::Missing`] if there is none, and another error if the request fails.
    pub async fn resolve(&self, which: &TagOrDigest) -> Result<Digest, OciError> {
        let address = self.manifest_address(which)?;
        let request = RegistryRequest::new(Method::HEAD, address).accept(MANIFESTS);
        let response = self.exchange(&request).await?;
        self.expect_found(which, response.status())?;
        let head = response.headers().clone();
        // Some registries do not support HEAD here; then GET is used.
        let is_known = response.status() == StatusCode::OK;
        match digest_of(&head).filter(|_| is_known) {
            Some(digest) => self.expect_digest(which, digest),
            None => Ok(self.manifest(which).await?.digest),
        }
    }

    /// Downloads a manifest and verifies its digest.
    ///
    /// # Errors
    /// Returns [`OciError::Missing`] if there is none, [`OciError::Damaged`] if its digest differs,
    /// and [`OciError::TooLarge`] if it is too large.
    pub async fn manifest(&self, which: &TagOrDigest) -> Result<Manifest, OciError> {
        let address = self.manifest_address(which)?;
        let request = RegistryRequest::new(Method::GET, address).accept(MANIFESTS);
        let response = self.exchange(&request).await?;
        self.expect_found(which, response.status())?;
        let response = self.expect(response, StatusCode::OK).await?;
        let said = digest_of(response.headers());
        let bytes = self.collect(response, "the manifest", MANIFEST_MAX).await?;
        let digest = Digest::of(&bytes);
        // A tag does not determine the digest, so only the registry's statement can be checked.
        if let Some(said) = said.filter(|said| *said != digest) {
            let why = format!(
                "the registry says that it is {}, and it is {}",
                digest_text(said),
                digest_text(digest)
            );
            return Err(OciError::damaged("the manifest", why));
        }
        self.expect_digest(which, digest)?;
        Ok(Manifest { bytes, digest })
    }

    /// Downloads a blob into an unnamed file, which disappears when it is closed.
    ///
    /// # Errors
    /// Returns [`OciError::Missing`] if there is none, [`OciError::Damaged`] if its size or digest
    /// differs, and [`OciError::File`] if no file can be written.
    pub async fn blob(&self, blob: &Blob, what: &str) -> Result<File, OciError> {
        let address = self.address("blobs", &digest_text(blob.digest))?;
        let response = self
            .exchange(&RegistryRequest::new(Method::GET, address))
            .await?;
        if response.status() == StatusCode::NOT_FOUND {
            let what = format!("{what} {} in {}", digest_text(blob.digest), self.name());
            return Err(OciError::Missing { what });
        }
        let response = self.expect(response, StatusCode::OK).await?;
        self.receive_file(response, blob, what).await
    }

    /// Returns the registry and the repository.
    fn name(&self) -> String {
        format!(
            "{}/{}",
            self.reference.registry(),
            self.reference.repository()
        )
    }

    fn expect_found(&self, which: &TagOrDigest, status: StatusCode) -> Result<(), OciError> {
        if status != StatusCode::NOT_FOUND {
            return Ok(());
        }
        let what = match which {
            TagOrDigest::Tag(tag) => format!("{}:{tag}", self.name()),
            TagOrDigest::Digest(digest) => format!("{}@{}", self.name(), digest_text(*digest)),
        };
        Err(OciError::Missing { what })
    }

    fn expect_digest(&self, which: &TagOrDigest, digest: Digest) -> Result<Digest, OciError> {
        match which {
            TagOrDigest::Digest(wanted) if *wanted != digest => {
                let why = format!(
                    "it is {} and was to be {}",
                    digest_text(digest),
                    digest_text(*wanted)
                );
                Err(OciError::damaged("the manifest", why))
            }
            _ => Ok(digest),
        }
    }
}

/// Returns the digest that a response states. Returns `None` if there is none or it is not SHA-256.
fn digest_of(headers: &HeaderMap) -> Option<Digest> {
    let text = headers.get(CONTENT_DIGEST)?.to_str().ok()?;
    parse_digest(text).ok()
}

/// Returns the target of a redirect or an upload.
fn location(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::LOCATION)?.to_str().ok()
}
