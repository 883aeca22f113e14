//! Uploads: blobs, then the manifest that makes them an artifact.

use bytes::Bytes;
use faasw_client::Digest;
use http::{Method, StatusCode};

use super::{Registry, digest_of, exchange::RegistryRequest, failure::host_of, location};
use crate::{OciError, reference::digest_text};

impl Registry {
    /// Uploads a blob, unless the registry already has it.
    ///
    /// # Errors
    /// Returns an error if the registry rejects the upload.
    pub async fn push_blob(&self, bytes: Bytes) -> Result<(), OciError> {
        let digest = digest_text(Digest::of(&bytes));
        let address = self.address("blobs", &digest)?;
        let response = self
            .exchange(&RegistryRequest::new(Method::HEAD, address))
            .await?;
        if response.status() == StatusCode::OK {
            return Ok(());
        }
        let begin = self.address("blobs", "uploads/")?;
        let response = self
            .exchange(&RegistryRequest::new(Method::POST, begin.clone()))
            .await?;
        let response = self.expect(response, StatusCode::ACCEPTED).await?;
        let to = location(response.headers()).ok_or_else(|| {
            OciError::protocol(&host_of(&begin), "it does not say where an upload goes")
        })?;
        // The address may be on another host, which receives no credentials of the registry.
        let mut to = self.redirect_target(&begin, to)?;
        to.query_pairs_mut().append_pair("digest", &digest);
        let request = RegistryRequest::new(Method::PUT, to).body("application/octet-stream", bytes);
        let response = self.exchange(&request).await?;
        self.expect(response, StatusCode::CREATED).await?;
        Ok(())
    }

    /// Uploads a manifest and sets a tag to it. Returns the manifest's digest.
    ///
    /// # Errors
    /// Returns an error if the registry rejects the manifest, or [`OciError::Damaged`] if it stored
    /// another one.
    pub async fn push_manifest(
        &self,
        tag: &str,
        kind: &'static str,
        bytes: Bytes,
    ) -> Result<Digest, OciError> {
        let digest = Digest::of(&bytes);
        let address = self.address("manifests", tag)?;
        let request = RegistryRequest::new(Method::PUT, address).body(kind, bytes);
        let response = self.exchange(&request).await?;
        let response = self.expect(response, StatusCode::CREATED).await?;
        match digest_of(response.headers()).filter(|said| *said != digest) {
            Some(said) => {
                let why = format!(
                    "the registry has made {} of {}",
                    digest_text(said),
                    digest_text(digest)
                );
                Err(OciError::damaged("the manifest", why))
            }
            None => Ok(digest),
        }
    }
}
