//! Seeds that come from their images, and their code with them: some of both may come while
//! guests run.

use std::sync::Arc;
use std::time::Instant;

use faasw_abi::pages::PageSet;
use faasw_seedtree::{Key, Owner};
use faasw_text::Line;
use tokio::sync::oneshot;

use super::{For, Seeds};
use crate::error::PlatformError;
use crate::images::{Place, Restored};
use crate::seeds::recipe::Recipe;
use crate::snapshots::{Code, Frozen, KeptCode, Outcome, Pager, Unreadable};

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
    /// of its memory may be on its way.
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
        let (teller, uses_code) = oneshot::channel();
        let reading = async {
            // It goes when this is done, whoever was told.
            let teller = teller;
            let library = self.images.as_ref()?;
            let uses_code = move |used: &PageSet| {
                // Whoever has gone away does not listen.
                let _ = teller.send(used.clone());
            };
            let restored = library.restore(recipe, parent, owner, in_parts, uses_code);
            Some((restored.await?, begun.elapsed()))
        };
        let bringing = async {
            let Some(kept) = kept else {
                return Ok(None);
            };
            // An engine's is used by all its scripts, each in another way.
            let is_one_functions = recipe.version().is_some_and(|version| !version.is_script());
            let first = match is_one_functions && self.tells_faults().await {
                true => uses_code.await.ok(),
                false => None,
            };
            let brought = kept.get_in_parts(first).await?;
            Ok::<_, PlatformError>(Some((brought, begun.elapsed())))
        };
        let (restored, brought) = tokio::join!(reading, bringing);
        let (brought, code_took) = brought?.unzip();
        let (code, rest_of_code) = brought.unzip();
        let rest_of_code = rest_of_code.flatten();
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
        if filling.is_none() && rest_of_code.is_none() {
            self.gather_code(recipe, &frozen);
        } else {
            let (filling, place) = filling.unzip();
            let pager = Pager::new(filling, rest_of_code);
            frozen.state().is_brought_by(&pager);
            let (wanted, told) = (Arc::downgrade(&frozen), Arc::downgrade(&frozen));
            let seeds = Arc::downgrade(self);
            let recipe = recipe.clone();
            let started = pager.start(
                move || wanted.strong_count() > 0,
                move |outcome| match outcome {
                    Outcome::Whole(late) => {
                        let (seed, asked) = (recipe.name(), late.asked);
                        tracing::debug!(seed, late = asked, "a seed is whole");
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

    /// A seed's memory, or its code, will never be whole: nothing is forked from it any more, and
    /// it is made anew, without its image, or of code that is compiled again.
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
            (error, ..) => {
                let (seed, told) = (recipe.name(), Line(error));
                tracing::warn!(seed, error = %told, "a seed could not be read to its end");
            }
        }
        if let (Unreadable::Code(_), Some(kept)) = (error, recipe.code()) {
            kept.found_damaged();
        }
        let gone = self.lock().discard(key, frozen);
        self.let_go(gone.into_iter().collect());
        self.make(key, For::Requests);
    }

    /// Has a seed's code gathered into large pages, behind whoever asks, once it is known what is
    /// used of it, or nobody wants to know.
    pub fn gather_code(&self, recipe: &Recipe, frozen: &Arc<Frozen>) {
        let Some(code) = frozen.state().code() else {
            return;
        };
        if !code.is_gathered() && self.may_gather(recipe, frozen) {
            let code = code.clone();
            self.runtime.spawn_blocking(move || code.gather());
        }
    }

    /// Whether it need not be told any more which small pages of a seed's code are used.
    fn may_gather(&self, recipe: &Recipe, frozen: &Frozen) -> bool {
        let is_one_functions = recipe.version().is_some_and(|version| !version.is_script());
        self.images.is_none() || !is_one_functions || !frozen.working_set().is_wanted()
    }
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
