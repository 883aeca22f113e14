//! Seeds that come from their images, and their code with them: some of both may come while
//! guests run.

use std::sync::Arc;
use std::time::Instant;

use faasw_abi::pages::{PageRange, PageSet};
use faasw_common::text::Line;
use faasw_seedtree::{Key, Owner};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{For, Seeds};
use crate::error::PlatformError;
use crate::images::{Place, Restored, Uses};
use crate::seeds::recipe::Recipe;
use crate::snapshots::{
    Code, CodeFilling, Frozen, KeptCode, Outcome, Pager, Unreadable, has_failed, is_whole, whole,
};

impl Seeds {
    /// Whether requests begin before all of a seed is read from its image.
    pub fn reads_in_parts(&self) -> bool {
        let stock = self.stock.upgrade();
        stock.is_some_and(|stock| stock.tells_faults())
    }

    /// The same, which may not be known yet.
    async fn tells_faults(&self) -> bool {
        match self.stock.upgrade() {
            Some(stock) => stock.will_tell_faults().await,
            None => false,
        }
    }

    /// The same, for who has a thread to wait with: it may not be known yet.
    fn will_read_in_parts(&self) -> impl FnOnce() -> bool + Send + 'static {
        let (stock, runtime) = (self.stock.clone(), self.runtime.clone());
        move || {
            let stock = stock.upgrade();
            stock.is_some_and(|stock| runtime.block_on(stock.will_tell_faults()))
        }
    }

    /// A seed as its image has it, if there is one, and its code, which is brought meanwhile. Some
    /// of its memory may be on its way, and of what it descends from.
    pub(super) async fn restored(
        self: &Arc<Self>,
        key: Key,
        recipe: &Arc<Recipe>,
        parent: Option<&Arc<Frozen>>,
        owner: Owner,
    ) -> Result<(Option<Arc<Frozen>>, Option<Arc<Code>>), PlatformError> {
        let begun = Instant::now();
        let kept = recipe.code();
        let known = kept.and_then(|kept| kept.known_digest());
        let in_parts = self.will_read_in_parts();
        let (teller, used) = oneshot::channel();
        let bring = parent.cloned().and_then(bringing_parent);
        let reading = async {
            // It goes when this is done, whoever was told.
            let teller = teller;
            let library = self.images.as_ref()?;
            let uses = move |uses: &Uses<'_>| {
                let is_there = bring.is_none_or(|bring| bring(uses));
                // Whoever has gone away does not listen.
                let _ = teller.send(uses.code.clone());
                is_there
            };
            let restored = library.restore(recipe, parent, owner, in_parts, uses);
            Some((restored.await?, begun.elapsed()))
        };
        let bringing = async {
            let Some(kept) = kept else {
                return Ok(None);
            };
            let brought = self.code_of(recipe, parent, kept, used).await?;
            Ok::<_, PlatformError>(Some((brought, begun.elapsed())))
        };
        let (restored, brought) = tokio::join!(reading, bringing);
        let (brought, code_took) = brought?.unzip();
        let (code, rest_of_code) = brought.unzip();
        let rest_of_code = rest_of_code.flatten();
        if parent.is_some_and(|parent| has_failed(parent)) {
            return Err(PlatformError::SeedUnreadable);
        }
        // Where it was compiled again, the image may be another code's.
        let is_its = known.is_none() || kept.and_then(|kept| kept.known_digest()) == known;
        let (restored, image_took) = restored.filter(|_| is_its).unzip();
        if let Some(version) = recipe.version().filter(|_| self.images.is_some()) {
            match restored {
                Some(_) => version.was_restored(),
                None => version.note_image(None),
            }
        }
        let Some(Restored { frozen, filling }) = restored else {
            drop(rest_of_code);
            return Ok((None, all_of(code, kept).await?));
        };
        let seed = recipe.name();
        tracing::debug!(seed, ?image_took, ?code_took, "a seed was read");
        let frozen = Arc::new(frozen);
        if let Some(code) = &code {
            recipe.gives_code(&frozen, code.clone());
        }
        let above = parent.filter(|parent| !is_whole(parent));
        let above = above.and_then(|parent| parent.state().pager());
        if filling.is_none() && rest_of_code.is_none() && above.is_none() {
            self.gather_code(key, recipe, &frozen);
        } else {
            let (filling, place) = filling.unzip();
            let own = frozen.layer().own().clone();
            let pager = Pager::new(filling, rest_of_code, own, above);
            frozen.state().is_brought_by(&pager);
            let (wanted, told) = (Arc::downgrade(&frozen), Arc::downgrade(&frozen));
            let seeds = Arc::downgrade(self);
            let recipe = recipe.clone();
            let started = pager.start(
                move || wanted.strong_count() > 0,
                move |outcome| match outcome {
                    Outcome::Whole(late) => {
                        let (seed, asked) = (recipe.name(), late.asked);
                        let took = begun.elapsed();
                        tracing::debug!(seed, late = asked, ?took, "a seed is whole");
                        if let (Some(frozen), Some(seeds)) = (told.upgrade(), seeds.upgrade()) {
                            frozen.state().is_brought(asked);
                            let set = frozen.working_set();
                            // Hardly anybody is parked yet with the set of before.
                            if set.learn_late(&late.memory, &late.code) {
                                seeds.keep_image(&recipe, &frozen);
                            }
                            if let Some(code) = frozen.state().code()
                                && seeds.may_gather(&recipe, &frozen)
                            {
                                code.gather();
                            }
                            drop(frozen);
                            seeds.has_grown(key, owner);
                        }
                    }
                    Outcome::Unwanted => {}
                    Outcome::Failed(error) => {
                        if let (Some(seeds), Some(frozen)) = (seeds.upgrade(), told.upgrade()) {
                            seeds.fail(key, &recipe, &frozen, place.as_ref(), &error);
                        }
                    }
                },
            );
            if let Err(error) = started {
                tracing::warn!(%error, "no thread for the rest of a seed");
                return Ok((None, all_of(code, kept).await?));
            }
        }
        Ok((Some(frozen), code))
    }

    /// Its code, for a seed whose image tells what is `used` of it, or is of no use.
    ///
    /// # Errors
    /// As [`KeptCode::get`].
    async fn code_of(
        &self,
        recipe: &Recipe,
        parent: Option<&Arc<Frozen>>,
        kept: &KeptCode,
        used: oneshot::Receiver<PageSet>,
    ) -> Result<(Arc<Code>, Option<CodeFilling>), PlatformError> {
        if recipe.version().is_some_and(|version| version.is_script()) {
            let engine = parent.and_then(|parent| parent.state().code());
            // What the script uses of it is there, as far as its image could tell.
            return match engine.filter(|code| !code.is_whole()) {
                Some(code) if used.await.is_ok() => Ok((code.clone(), None)),
                _ => kept.get_in_parts(None).await,
            };
        }
        let first = if self.tells_faults().await {
            used.await.ok()
        } else {
            None
        };
        let first = match recipe {
            // Each script says what it uses.
            Recipe::Engine(_) => first.map(|_| PageRange::around(0, 1).into()),
            _ => first,
        };
        kept.get_in_parts(first).await
    }

    /// A seed's memory, or its code, will never be whole, or what it descends from: nothing is
    /// forked from it any more, and it is made anew, without its image, or of code that is compiled
    /// again.
    fn fail(
        self: &Arc<Self>,
        key: Key,
        recipe: &Recipe,
        frozen: &Arc<Frozen>,
        place: Option<&Place>,
        error: &Unreadable,
    ) {
        match (error, &self.images, place) {
            (Unreadable::Image(error), Some(library), Some(place)) => library.refuse(place, error),
            // It was told of that.
            (Unreadable::Parent, ..) => {}
            (error, ..) => {
                let (seed, told) = (recipe.name(), Line(error));
                tracing::warn!(seed, error = %told, "a seed could not be read to its end");
            }
        }
        if let (Unreadable::Code(_), Some(kept), Some(code)) =
            (error, recipe.code(), frozen.state().code())
        {
            kept.found_damaged(code);
        }
        let gone = self.lock().discard(key, frozen);
        self.let_go(gone.into_iter().collect());
        self.make(key, For::Clients);
    }

    /// Has a seed's code gathered into large pages, behind whoever asks, once it is known what is
    /// used of it, or nobody wants to know. It takes more memory then, which counts from then on.
    pub fn gather_code(self: &Arc<Self>, key: Key, recipe: &Recipe, frozen: &Arc<Frozen>) {
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
                    seeds.has_grown(key, owner);
                }
            });
        }
    }

    /// Whether it need not be told any more which small pages of a seed's code are used.
    fn may_gather(&self, recipe: &Recipe, frozen: &Frozen) -> bool {
        let is_one_functions = recipe.version().is_some_and(|version| !version.is_script());
        self.images.is_none() || !is_one_functions || !frozen.working_set().is_wanted()
    }
}

/// Has a child's image bring what it uses of a parent some of which is on its way, and says whether
/// that is there; nothing where all of the parent is.
fn bringing_parent(parent: Arc<Frozen>) -> Option<impl FnOnce(&Uses<'_>) -> bool + Send + 'static> {
    if is_whole(&parent) {
        return None;
    }
    let pager = parent.state().pager();
    let runtime = Handle::current();
    Some(move |uses: &Uses<'_>| {
        // It is not known what it uses of its engine's code; or nobody brings the parent any more,
        // which has come to be whole, or never will be.
        let Some(pager) = pager.filter(|_| !uses.code.is_empty()) else {
            return runtime.block_on(whole(&parent));
        };
        match pager.bring_first(&uses.parent_memory, uses.code) {
            Ok(()) => true,
            // Whoever brings it for all finds the same, and says so.
            Err(error) => {
                pager.cannot_be(error);
                false
            }
        }
    })
}

/// Code for whoever makes a seed of it, where nobody brings the rest of it any more.
///
/// # Errors
/// As [`KeptCode::get`].
async fn all_of(
    code: Option<Arc<Code>>,
    kept: Option<&Arc<KeptCode>>,
) -> Result<Option<Arc<Code>>, PlatformError> {
    match kept {
        Some(kept) if code.as_ref().is_some_and(|code| !code.is_whole()) => {
            kept.get().await.map(Some)
        }
        _ => Ok(code),
    }
}
