//! Restoring seeds from their images, together with their code. Parts of both may be read while
//! guests run.

use std::sync::Arc;
use std::time::Instant;

use faasw_abi::pages::{PageRange, PageSet};
use faasw_common::text::Line;
use faasw_seedtree::{Key, Owner};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{SeedPurpose, Seeds};
use crate::error::PlatformError;
use crate::images::{ImageFile, ImageUses, Restored};
use crate::seeds::seed_step::SeedStep;
use crate::snapshots::{
    Code, CodeFill, CodeHandle, Pager, PagingOutcome, SeedReadError, SeedSnapshot, has_failed,
    is_fully_loaded, wait_fully_loaded,
};

impl Seeds {
    /// Returns whether requests may start before all of a seed is read from its image.
    pub fn reads_in_parts(&self) -> bool {
        let zygote_pool = self.zygote_pool.upgrade();
        zygote_pool.is_some_and(|zygote_pool| zygote_pool.reports_faults())
    }

    /// Waits until it is known whether page faults of guests can be answered, and returns that.
    async fn wait_for_fault_support(&self) -> bool {
        match self.zygote_pool.upgrade() {
            Some(zygote_pool) => zygote_pool.wait_for_fault_support().await,
            None => false,
        }
    }

    /// Returns a closure with the result of [`Self::wait_for_fault_support`]. The closure may
    /// block, so it has to run on a thread that may wait.
    fn will_read_in_parts(&self) -> impl FnOnce() -> bool + Send + 'static {
        let (zygote_pool, runtime) = (self.zygote_pool.clone(), self.runtime.clone());
        move || {
            let zygote_pool = zygote_pool.upgrade();
            zygote_pool
                .is_some_and(|zygote_pool| runtime.block_on(zygote_pool.wait_for_fault_support()))
        }
    }

    /// Returns a seed from its image, if there is one, and its code, which is loaded at the same
    /// time. Some of its memory and of its ancestors' may still be being read.
    pub(super) async fn restored(
        self: &Arc<Self>,
        key: Key,
        recipe: &Arc<SeedStep>,
        parent: Option<&Arc<SeedSnapshot>>,
        owner: Owner,
    ) -> Result<(Option<Arc<SeedSnapshot>>, Option<Arc<Code>>), PlatformError> {
        let begun = Instant::now();
        let kept = recipe.code();
        let known = kept.and_then(|kept| kept.known_digest());
        let in_parts = self.will_read_in_parts();
        let (used_sender, used) = oneshot::channel();
        let load_parent = parent.cloned().and_then(parent_loader);
        let reading = async {
            // The sender is dropped when reading ends, whether or not it was used.
            let used_sender = used_sender;
            let image_store = self.images.as_ref()?;
            let uses = move |uses: &ImageUses<'_>| {
                let is_there = load_parent.is_none_or(|load| load(uses));
                // The receiver may be gone.
                let _ = used_sender.send(uses.code.clone());
                is_there
            };
            let restored = image_store.restore(recipe, parent, owner, in_parts, uses);
            Some((restored.await?, begun.elapsed()))
        };
        let loading_code = async {
            let Some(kept) = kept else {
                return Ok(None);
            };
            let loaded = self.code_of(recipe, parent, kept, used).await?;
            Ok::<_, PlatformError>(Some((loaded, begun.elapsed())))
        };
        let (restored, loaded) = tokio::join!(reading, loading_code);
        let (loaded, code_took) = loaded?.unzip();
        let (code, rest_of_code) = loaded.unzip();
        let rest_of_code = rest_of_code.flatten();
        if parent.is_some_and(|parent| has_failed(parent)) {
            return Err(PlatformError::SeedUnreadable);
        }
        // If the code was compiled again, the image may belong to other code.
        let is_its = known.is_none() || kept.and_then(|kept| kept.known_digest()) == known;
        let (restored, image_took) = restored.filter(|_| is_its).unzip();
        if let Some(version) = recipe.function_step().filter(|_| self.images.is_some()) {
            match restored {
                Some(_) => version.was_restored(),
                None => version.note_image(None),
            }
        }
        let Some(Restored { frozen, filling }) = restored else {
            drop(rest_of_code);
            return Ok((None, fully_loaded_code(code, kept).await?));
        };
        let seed = recipe.name();
        tracing::debug!(seed, ?image_took, ?code_took, "a seed was read");
        let frozen = Arc::new(frozen);
        if let Some(code) = &code {
            recipe.attach_code(&frozen, code.clone());
        }
        let above = parent.filter(|parent| !is_fully_loaded(parent));
        let above = above.and_then(|parent| parent.state().pager());
        if filling.is_none() && rest_of_code.is_none() && above.is_none() {
            self.gather_code(key, recipe, &frozen);
        } else {
            let (filling, file) = filling.unzip();
            let own = frozen.layer().own().clone();
            let pager = Pager::new(filling, rest_of_code, own, above);
            frozen.state().set_pager(&pager);
            let (wanted, weak_frozen) = (Arc::downgrade(&frozen), Arc::downgrade(&frozen));
            let seeds = Arc::downgrade(self);
            let recipe = recipe.clone();
            let started = pager.start(
                move || wanted.strong_count() > 0,
                move |outcome| match outcome {
                    PagingOutcome::Complete(late) => {
                        let (seed, requested) = (recipe.name(), late.requested);
                        let took = begun.elapsed();
                        tracing::debug!(seed, late = requested, ?took, "a seed is fully loaded");
                        if let (Some(frozen), Some(seeds)) =
                            (weak_frozen.upgrade(), seeds.upgrade())
                        {
                            frozen.state().record_fully_loaded(requested);
                            let set = frozen.working_set();
                            // Hardly any instance is warm with the previous working set yet.
                            if set.learn_late(&late.memory, &late.code) {
                                seeds.queue_image_write(&recipe, &frozen);
                            }
                            if let Some(code) = frozen.state().code()
                                && seeds.may_gather(&recipe, &frozen)
                            {
                                code.gather();
                            }
                            drop(frozen);
                            seeds.recount(key, owner);
                        }
                    }
                    PagingOutcome::Unwanted => {}
                    PagingOutcome::Failed(error) => {
                        if let (Some(seeds), Some(frozen)) =
                            (seeds.upgrade(), weak_frozen.upgrade())
                        {
                            seeds.fail(key, &recipe, &frozen, file.as_ref(), &error);
                        }
                    }
                },
            );
            if let Err(error) = started {
                tracing::warn!(%error, "cannot start a thread that loads the rest of a seed");
                return Ok((None, fully_loaded_code(code, kept).await?));
            }
        }
        Ok((Some(frozen), code))
    }

    /// Returns the code for a seed. If the seed has a usable image, `used` receives the pages of
    /// the code that are used.
    ///
    /// # Errors
    /// As [`CodeHandle::get`].
    async fn code_of(
        &self,
        recipe: &SeedStep,
        parent: Option<&Arc<SeedSnapshot>>,
        kept: &CodeHandle,
        used: oneshot::Receiver<PageSet>,
    ) -> Result<(Arc<Code>, Option<CodeFill>), PlatformError> {
        if recipe
            .function_step()
            .is_some_and(|version| version.is_script())
        {
            let engine = parent.and_then(|parent| parent.state().code());
            // The pages that the script uses are present, as far as its image records them.
            return match engine.filter(|code| !code.progress().is_fully_loaded()) {
                Some(code) if used.await.is_ok() => Ok((code.clone(), None)),
                _ => kept.get_in_parts(None).await,
            };
        }
        let first = if self.wait_for_fault_support().await {
            used.await.ok()
        } else {
            None
        };
        let first = match recipe {
            // The image of each script records which pages of the engine's code it uses.
            SeedStep::Engine(_) => first.map(|_| PageRange::around(0, 1).into()),
            _ => first,
        };
        kept.get_in_parts(first).await
    }

    /// Handles a seed whose memory or code, or that of an ancestor, can never be completed. Nothing
    /// is forked from it any more. It is made again, without its image or with code that is
    /// compiled again.
    fn fail(
        self: &Arc<Self>,
        key: Key,
        recipe: &SeedStep,
        frozen: &Arc<SeedSnapshot>,
        file: Option<&ImageFile>,
        error: &SeedReadError,
    ) {
        match (error, &self.images, file) {
            (SeedReadError::Image(error), Some(image_store), Some(file)) => {
                image_store.reject(file, error)
            }
            // The ancestor's pager has reported it.
            (SeedReadError::Parent, ..) => {}
            (error, ..) => {
                let (seed, cause) = (recipe.name(), Line(error));
                tracing::warn!(seed, error = %cause, "a seed could not be read completely");
            }
        }
        if let (SeedReadError::Code(_), Some(kept), Some(code)) =
            (error, recipe.code(), frozen.state().code())
        {
            kept.mark_damaged(code);
        }
        let gone = self.lock().discard(key, frozen);
        self.drop_seeds(gone.into_iter().collect());
        self.start_making(key, SeedPurpose::Clients);
    }

    /// Gathers a seed's code into large pages in the background, if it is known which of its pages
    /// are used, or if that need not be known. The code takes more memory then, which is counted
    /// afterwards.
    pub fn gather_code(self: &Arc<Self>, key: Key, recipe: &SeedStep, frozen: &Arc<SeedSnapshot>) {
        let Some(code) = frozen.state().code() else {
            return;
        };
        if !code.is_being_gathered() && self.may_gather(recipe, frozen) {
            let (code, seeds) = (code.clone(), Arc::downgrade(self));
            let owner = frozen.owner();
            self.runtime.spawn_blocking(move || {
                code.gather();
                drop(code);
                if let Some(seeds) = seeds.upgrade() {
                    seeds.recount(key, owner);
                }
            });
        }
    }

    /// Returns whether the use of small pages of a seed's code need not be observed any more.
    fn may_gather(&self, recipe: &SeedStep, frozen: &SeedSnapshot) -> bool {
        let is_one_functions = recipe
            .function_step()
            .is_some_and(|version| !version.is_script());
        self.images.is_none() || !is_one_functions || !frozen.working_set().is_wanted()
    }
}

/// Returns a closure that reads the pages of a parent that a child uses, and returns whether they
/// are present. Returns `None` if all of the parent is present.
fn parent_loader(
    parent: Arc<SeedSnapshot>,
) -> Option<impl FnOnce(&ImageUses<'_>) -> bool + Send + 'static> {
    if is_fully_loaded(&parent) {
        return None;
    }
    let pager = parent.state().pager();
    let runtime = Handle::current();
    Some(move |uses: &ImageUses<'_>| {
        // Either it is unknown which pages of its engine's code the child uses, or the parent's
        // pager has ended, and the parent is complete or never will be.
        let Some(pager) = pager.filter(|_| !uses.code.is_empty()) else {
            return runtime.block_on(wait_fully_loaded(&parent));
        };
        match pager.read_first(&uses.parent_memory, uses.code) {
            Ok(()) => true,
            // The parent's pager finds the same error, and reports it.
            Err(error) => {
                pager.fail_with(error);
                false
            }
        }
    })
}

/// Returns code for a making that needs all of it, when no pager reads the rest any more.
///
/// # Errors
/// As [`CodeHandle::get`].
async fn fully_loaded_code(
    code: Option<Arc<Code>>,
    kept: Option<&Arc<CodeHandle>>,
) -> Result<Option<Arc<Code>>, PlatformError> {
    match kept {
        Some(kept)
            if code
                .as_ref()
                .is_some_and(|code| !code.progress().is_fully_loaded()) =>
        {
            kept.get().await.map(Some)
        }
        _ => Ok(code),
    }
}
