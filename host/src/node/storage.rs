//! The storage of a node, and work that may block.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use faasw_client::Digest;
use faasw_pool::{ImageId, Images};

use crate::{
    data_dir::DataDir,
    registry::{Registry, RegistryError},
    services::{key_value::KeyValue, secrets::Vault},
    shared::Entry,
};

/// A node's storage: its registry, key-value store, secrets, directory and func-images.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) registry: Registry,
    pub(crate) key_value: Arc<KeyValue>,
    pub(crate) secrets: Vault,
    /// `None` if the node lives in memory only. It is declared after the registry, so that the
    /// directory's lock is held as long as the registry is open.
    pub(crate) directory: Option<DataDir>,
    /// The func-images of seeds that are not in memory.
    pub(crate) images: Option<Arc<Images>>,
    /// The host's entry for a function that is to be deployed, until a deployment takes it.
    pub(crate) shared: Mutex<Option<Arc<Entry>>>,
}

impl Storage {
    /// Takes the host's entry; only the first deployment gets it.
    pub(super) fn take_shared(&self) -> Option<Arc<Entry>> {
        // The lock's holders do not panic while they change the data.
        let shared = self.shared.lock();
        shared.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs work of the registry on a thread that may block.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Registry) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let storage = self.clone();
        blocking(move || work(&storage.registry)).await
    }

    /// Keeps the image `now` of a version that serves from now on, and removes the images `gone`.
    pub(super) async fn serve_image(self: &Arc<Self>, now: Option<ImageId>, gone: Vec<ImageId>) {
        let Some(images) = self.images.clone() else {
            return;
        };
        let serving = blocking(move || {
            images.serve(now, &gone);
            Ok(())
        });
        let _ = serving.await;
    }
}

/// Runs work on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(RegistryError::Interrupted))
}

/// Computes the digest of these bytes on a thread that may block.
pub(super) async fn digest_of(bytes: &Bytes) -> Result<Digest, RegistryError> {
    let bytes = bytes.clone();
    blocking(move || Ok(Digest::of(&bytes))).await
}

/// Runs a change of registry and tables to its end, even if the returned future is dropped before
/// that: otherwise registry and tables would disagree.
pub(super) async fn uninterrupted<T, E>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<RegistryError> + Send + 'static,
{
    let changed = tokio::spawn(change).await;
    changed.unwrap_or_else(|_| Err(RegistryError::Interrupted.into()))
}
