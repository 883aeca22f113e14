//! Keeping the stock filled.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use faasw_common::text::Line;
use tokio::time::{Instant, timeout_at};

use super::ready::{Ready, Todo};
use super::watermarks::PERIOD;
use super::{Stock, lock};
use crate::error::PlatformError;
use crate::open_files;
use crate::snapshots::{Frozen, Parent, Template};

impl Stock {
    /// Keeps the stock filled as long as it exists.
    pub(super) async fn refill(stock: Weak<Self>) {
        loop {
            let Some(stock) = stock.upgrade() else { return };
            let next = match stock.fill().await {
                Ok(next) => next,
                Err(error) => {
                    if stock.stopped.load(Ordering::Acquire) {
                        return;
                    }
                    // The next request makes its own sandbox and reports what is wrong.
                    tracing::warn!(error = %Line(error), "a zygote could not be made");
                    None
                }
            };
            #[cfg(feature = "measuring")]
            stock.filled.notify_waiters();
            // Waits without keeping the stock alive: its `Drop` notifies.
            let changed = stock.changed.clone();
            drop(stock);
            match next {
                // A timeout and a notification have the same effect.
                Some(next) => {
                    let _ = timeout_at(next, changed.notified()).await;
                }
                None => changed.notified().await,
            }
        }
    }

    /// Makes missing zygotes and ends surplus ones. Returns when to check again if none is taken
    /// before.
    async fn fill(&self) -> Result<Option<Instant>, PlatformError> {
        loop {
            let now = Instant::now();
            let (wanted, next) = {
                let mut watermarks = lock(&self.watermarks);
                let next = watermarks.decay(now);
                (watermarks.wanted(), next)
            };
            let todo = lock(&self.kept).next(wanted, now);
            let (bare, parent) = match todo {
                Todo::End(ended) => {
                    // The spawner ends it; nothing waits for that.
                    drop(ended);
                    continue;
                }
                Todo::Preset(bare, parent) => (Some(bare), Some(parent)),
                Todo::Make(parent) => (None, parent),
                Todo::Rest(false) => return Ok(next),
                Todo::Rest(true) => {
                    let later = now + PERIOD;
                    return Ok(Some(next.map_or(later, |next| next.min(later))));
                }
            };
            // Clients and requests come first: a request that finds none makes its own.
            if bare.is_none() && open_files::are_scarce() {
                return Ok(Some(now + PERIOD));
            }
            let name = parent.as_ref().map(Parent::of);
            let made = self.make_ahead(bare, parent).await?;
            let mut kept = lock(&self.kept);
            let is_abandoned = name.is_some_and(|name| kept.note_preset(&name, made.is_err()));
            match made {
                // [`Stock::stop`] sets `stopped` before it empties the stock.
                Ok(_) if self.stopped.load(Ordering::Acquire) => {
                    return Err(PlatformError::SpawnerGone);
                }
                Ok(made) => kept.put(made),
                Err(why) => self.note_preset_failure(&why, is_abandoned),
            }
        }
    }

    /// Makes a sandbox for an instance ahead of requests, when nothing else wants to run. Like the
    /// ready ones, which are left to requests, it is specialised for `parent` if possible.
    ///
    /// # Errors
    /// Returns an error if none can be made.
    pub async fn make_for(&self, parent: &Arc<Frozen>) -> Result<Ready, PlatformError> {
        match self.make_ahead(None, Some(parent.clone())).await? {
            Ok(ready) => Ok(ready),
            Err(why) => {
                self.note_preset_failure(&why, false);
                self.make_bare().await
            }
        }
    }

    /// Counts a zygote that could not be specialised, and logs a warning; or an error, if no other
    /// will be specialised for that seed.
    fn note_preset_failure(&self, why: &str, is_abandoned: bool) {
        self.preset_failures.fetch_add(1, Ordering::Relaxed);
        let why = Line(why);
        if is_abandoned {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                %why,
                "zygotes are no longer specialised for a seed: first requests of its functions \
                 take longer"
            );
        } else {
            tracing::warn!(%why, "a zygote could not be specialised");
        }
    }

    /// Specialises `bare`, or a new sandbox, for `parent`, if there is one. The inner error says
    /// why that is not possible.
    async fn make_ahead(
        &self,
        bare: Option<Ready>,
        parent: Option<Arc<Frozen>>,
    ) -> Result<Result<Ready, String>, PlatformError> {
        let template = match parent.map(Template::new).transpose() {
            Ok(template) => template,
            Err(errno) => return Ok(Err(errno.to_string())),
        };
        match (bare, &template) {
            (Some(bare), Some(template)) => bare.preset(template).await,
            (_, template) => {
                let maker = self.maker()?;
                Ready::make_ahead(&maker, self.wall_clock, template.as_ref()).await
            }
        }
    }
}
