//! The distribution protocol, as far as a module needs it.
//!
//! `exchange` has one request and where it leads, `body` what comes back, `log_in` who we are,
//! `upload` the way there.

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

/// Most bytes of a manifest: those that registries must take by the distribution specification.
pub const MANIFEST_MAX: u64 = 4 << 20;

/// The field in which registries say of what digest something is.
const CONTENT_DIGEST: &str = "docker-content-digest";

/// What of manifests is asked for.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// What may be done with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reading it.
    Pull,
    /// Adding to it.
    Push,
}

/// A repository of a registry.
#[derive(Debug)]
pub struct Registry {
    client: Client,
    access: Access,
    reference: Reference,
    base: Url,
    action: Action,
    credential: Option<Credential>,
    /// What it is shown, once it has asked.
    shown: Mutex<Option<HeaderValue>>,
}

/// A manifest, of a digest that it has.
#[derive(Debug)]
pub struct Manifest {
    /// Its bytes.
    pub bytes: Bytes,
    /// Their digest.
    pub digest: Digest,
}

/// What a manifest says of other bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Their digest.
    pub digest: Digest,
    /// How many there are.
    pub bytes: u64,
}

impl Registry {
    /// The repository of a reference. It is connected to later.
    ///
    /// # Errors
    /// When the system's authorities make no client.
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
        // All of them are of letters that mean nothing in an address.
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

    /// The digest of the manifest that a tag or a digest leads to now.
    ///
    /// # Errors
    /// When there is none, or the registry does not say.
    pub async fn resolve(&self, which: &Which) -> Result<Digest, OciError> {
        let address = self.manifest_address(which)?;
        let asked = Asked::new(Method::HEAD, address).accept(MANIFESTS);
        let response = self.exchange(&asked).await?;
        self.expect_there(which, response.status())?;
        let head = response.headers().clone();
        // Who does not answer HEAD may answer GET.
        let is_known = response.status() == StatusCode::OK;
        match digest_of(&head).filter(|_| is_known) {
            Some(digest) => self.expect_same(which, digest),
            None => Ok(self.manifest(which).await?.digest),
        }
    }

    /// A manifest, whole and of its digest.
    ///
    /// # Errors
    /// When there is none, or another than was asked for, or one that is too large.
    pub async fn manifest(&self, which: &Which) -> Result<Manifest, OciError> {
        let address = self.manifest_address(which)?;
        let asked = Asked::new(Method::GET, address).accept(MANIFESTS);
        let response = self.exchange(&asked).await?;
        self.expect_there(which, response.status())?;
        let response = self.expect(response, StatusCode::OK).await?;
        let said = digest_of(response.headers());
        let bytes = self.collect(response, "the manifest", MANIFEST_MAX).await?;
        let digest = Digest::of(&bytes);
        // Of a tag that is all that there is to hold it against.
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

    /// A blob, in a file that has no name and is gone with its last user.
    ///
    /// # Errors
    /// When there is none, when it has not the bytes and the digest that it is to have, when no
    /// file can be written.
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

    /// Registry and repository.
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

/// What a response says that its content's digest is; nothing where that is by another algorithm.
fn digest_of(headers: &HeaderMap) -> Option<Digest> {
    let text = headers.get(CONTENT_DIGEST)?.to_str().ok()?;
    parse_digest(text).ok()
}

/// What a response leads to.
fn location(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::LOCATION)?.to_str().ok()
}
