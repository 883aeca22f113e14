//! The work that a node does in the background after its start.
//!
//! The functions that were used last are made ready, as many as there is memory for. All others
//! rest: nothing of them is read before a request needs them. But code that another faasw has
//! compiled is compiled again, and images that were made over another base are made again. This
//! happens one function after the other, beside the requests. Afterwards these functions rest, too.

use std::{
    cmp::Reverse,
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use faasw_client::Digest;
use faasw_common::text::Line;
use faasw_pool::Images;

use super::{functions::Function, parts::NodeParts, storage::blocking};
use crate::backend::ServableVersion;

/// Functions that are made ready ahead of requests, unless more are to have instances warm.
/// Making more of them ready would save only the start of their first requests, some milliseconds
/// each.
const PREWARMED_FUNCTIONS: usize = 64;

/// The longest pause after a renewal. A pause is as long as the renewal was, up to this.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The short digest of the base that all functions' images have to be made over.
type BaseId = u64;

/// The state that is read before any function is renewed.
struct RenewalState {
    /// Modules and engines whose code need not be compiled.
    compiled: HashSet<Digest>,
    /// The base that images have to be made over. `None` if the node keeps no images.
    base: Option<BaseId>,
    /// Whether existing images may be made over another base.
    are_suspect: bool,
    /// Bytes that are still free for images.
    bytes_left: u64,
}

/// Makes functions ready after a node's start.
pub(crate) struct StartupWarmup {
    pub(crate) parts: Arc<NodeParts>,
}

impl StartupWarmup {
    /// Does this work once.
    pub(crate) async fn run(self) {
        let (ahead, rest) = self.split_by_last_use().await;
        if ahead.is_empty() {
            return;
        }
        for function in &ahead {
            if let Some(version) = self.try_wake(function).await {
                version.prewarm_seed();
                version.provision();
            }
        }
        let Some(mut known) = self.read_renewal_state().await else {
            return;
        };
        // Functions that are to have instances stay ready, whether the instances fit or not.
        let ahead_rest = self.parts.backend.min_warm() == 0;
        let rest = rest.iter().map(|function| (function, true));
        let ahead = ahead.iter().map(|function| (function, ahead_rest));
        for (function, rests) in rest.chain(ahead) {
            let begun = Instant::now();
            if self.parts.state.has_ended() {
                return;
            }
            if self.renew(function, rests, &mut known).await {
                tokio::time::sleep(begun.elapsed().min(MAX_PAUSE)).await;
            }
        }
        if let Some(base) = known.base.filter(|_| known.are_suspect) {
            let noting = self
                .parts
                .storage
                .run(move |registry| registry.record_image_base(base));
            if let Err(error) = noting.await {
                tracing::debug!(%error, "func-images are checked again at the next start");
            }
        }
    }

    /// Returns the functions that were used last, and all others.
    async fn split_by_last_use(&self) -> (Vec<Arc<Function>>, Vec<Arc<Function>>) {
        let mut ahead = self.parts.functions.all();
        let most = self
            .parts
            .backend
            .provided_functions()
            .max(PREWARMED_FUNCTIONS);
        if ahead.len() <= most {
            return (ahead, Vec::new());
        }
        if let Some(images) = self.parts.storage.images.clone() {
            let sorting = blocking(move || {
                let used = |function: &Arc<Function>| -> Option<SystemTime> {
                    images.used(&function.image())
                };
                ahead.sort_by_cached_key(|function| Reverse(used(function)));
                Ok(ahead)
            });
            ahead = sorting.await.unwrap_or_default();
        }
        let rest = ahead.split_off(ahead.len().min(most));
        (ahead, rest)
    }

    /// Wakes a function, and logs an error if that fails.
    async fn try_wake(&self, function: &Function) -> Option<Arc<dyn ServableVersion>> {
        let woken = function
            .version_cell
            .get_or_wake(self.parts.versions.wake(function))
            .await;
        woken
            .inspect_err(|error| {
                tracing::error!(
                    function = %function.name, error = %Line(error),
                    "a function could not be prepared; its next request retries"
                );
            })
            .ok()
    }

    async fn read_renewal_state(&self) -> Option<RenewalState> {
        let base = match &self.parts.storage.images {
            Some(_) => self.parts.backend.shared_content().await,
            None => None,
        };
        let base = base.map(|shared| base_id(&shared));
        let generation = self.parts.backend.generation();
        let images = self.parts.storage.images.clone();
        let reading = self.parts.storage.run(move |registry| {
            Ok(RenewalState {
                compiled: registry.modules_compiled_by(&generation)?,
                are_suspect: registry.image_base()? != base,
                base,
                bytes_left: images.as_deref().map_or(0, Images::bytes_left),
            })
        });
        reading
            .await
            .inspect_err(|error| tracing::warn!(%error, "func-images are not renewed"))
            .ok()
    }

    /// Compiles a function and makes its image, if either is needed. Returns whether anything was
    /// done. If it `rests`, nothing of it stays in memory afterwards.
    async fn renew(&self, function: &Arc<Function>, rests: bool, known: &mut RenewalState) -> bool {
        let is_compiled = known.compiled.contains(&function.record.compiled_from());
        // An existing image of code that was compiled otherwise is of no use.
        let lacks_image =
            known.base.is_some() && (!is_compiled || self.lacks_image(function, known).await);
        if is_compiled && !lacks_image || !self.parts.functions.is_current(function) {
            return false;
        }
        let Some(version) = self.try_wake(function).await else {
            return true;
        };
        known.compiled.insert(function.record.compiled_from());
        if lacks_image {
            version.ensure_image().await;
        }
        drop(version);
        if rests {
            function.version_cell.release_if_evicted();
        }
        true
    }

    /// Whether a function is known to have no usable image, although there is space for one.
    async fn lacks_image(&self, function: &Arc<Function>, known: &mut RenewalState) -> bool {
        let Some(images) = self.parts.storage.images.clone() else {
            return false;
        };
        let looked_for = function.clone();
        let looking = blocking(move || Ok(images.used(&looked_for.image()).is_some()));
        if looking.await.unwrap_or(true) {
            return known.are_suspect;
        }
        // A further image must not displace one that may be used more.
        let left = known
            .bytes_left
            .checked_sub(function.record.freeze.layer_bytes);
        known.bytes_left = left.unwrap_or(known.bytes_left);
        left.is_some()
    }
}

fn base_id(shared: &str) -> BaseId {
    let digest = Digest::of(shared.as_bytes()).bytes();
    let (start, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*start)
}
