//! The part of the distribution protocol that transfers of modules need.
//!
//! `exchange` sends requests and follows redirects, `body` transfers bodies, `log_in` obtains
//! authorization, and `upload` pushes.

mod body;
mod exchange;
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
    reference::{Which, parse_digest, spelled},
};
use exchange::Asked;

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

    fn manifest_address(&self, which: &Which) -> Result<Url, OciError> {
        match which {
            Which::Tag(tag) => self.address("manifests", tag),
            Which::Digest(digest) => self.address("manifests", &spelled(*digest)),
        }
    }

    /// Returns the digest of the manifest to which a tag or a digest leads now.
    ///
    /// # Errors
    /// Returns [`OciError::Missing`] if there is none, and another error if the request fails.
    pub async fn resolve(&self, which: &Which) -> Result<Digest, OciError> {
        let address = self.manifest_address(which)?;
        let asked = Asked::new(Method::HEAD, address).accept(MANIFESTS);
        let response = self.exchange(&asked).await?;
        self.expect_there(which, response.status())?;
        let head = response.headers().clone();
        // Some registries do not support HEAD here; then GET is used.
        let is_known = response.status() == StatusCode::OK;
        match digest_of(&head).filter(|_| is_known) {
            Some(digest) => self.expect_same(which, digest),
            None => Ok(self.manifest(which).await?.digest),
        }
    }

    /// Downloads a manifest and verifies its digest.
    ///
    /// # Errors
    /// Returns [`OciError::Missing`] if there is none, [`OciError::Damaged`] if its digest differs,
    /// and [`OciError::TooLarge`] if it is too large.
    pub async fn manifest(&self, which: &Which) -> Result<Manifest, OciError> {
        let address = self.manifest_address(which)?;
        let asked = Asked::new(Method::GET, address).accept(MANIFESTS);
        let response = self.exchange(&asked).await?;
        self.expect_there(which, response.status())?;
        let response = self.expect(response, StatusCode::OK).await?;
        let said = digest_of(response.headers());
        let bytes = self.collect(response, "the manifest", MANIFEST_MAX).await?;
        let digest = Digest::of(&bytes);
        // A tag does not determine the digest, so only the registry's statement can be checked.
        if let Some(said) = said.filter(|said| *said != digest) {
            let why = format!(
                "the registry says that it is {}, and it is {}",
                spelled(said),
                spelled(digest)
            );
            return Err(OciError::damaged("the manifest", why));
        }
        self.expect_same(which, digest)?;
        Ok(Manifest { bytes, digest })
    }

    /// Downloads a blob into an unnamed file, which disappears when it is closed.
    ///
    /// # Errors
    /// Returns [`OciError::Missing`] if there is none, [`OciError::Damaged`] if its size or digest
    /// differs, and [`OciError::File`] if no file can be written.
    pub async fn blob(&self, blob: &Blob, what: &str) -> Result<File, OciError> {
        let address = self.address("blobs", &spelled(blob.digest))?;
        let response = self.exchange(&Asked::new(Method::GET, address)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            let what = format!("{what} {} in {}", spelled(blob.digest), self.name());
            return Err(OciError::Missing { what });
        }
        let response = self.expect(response, StatusCode::OK).await?;
        self.keep(response, blob, what).await
    }

    /// Returns the registry and the repository.
    fn name(&self) -> String {
        format!(
            "{}/{}",
            self.reference.registry(),
            self.reference.repository()
        )
    }

    fn expect_there(&self, which: &Which, status: StatusCode) -> Result<(), OciError> {
        if status != StatusCode::NOT_FOUND {
            return Ok(());
        }
        let what = match which {
            Which::Tag(tag) => format!("{}:{tag}", self.name()),
            Which::Digest(digest) => format!("{}@{}", self.name(), spelled(*digest)),
        };
        Err(OciError::Missing { what })
    }

    fn expect_same(&self, which: &Which, digest: Digest) -> Result<Digest, OciError> {
        match which {
            Which::Digest(wanted) if *wanted != digest => {
                let why = format!(
                    "it is {} and was to be {}",
                    spelled(digest),
                    spelled(*wanted)
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
