//! Refilling the zygote pool.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use faasw_common::text::Line;
use tokio::time::{Instant, timeout_at};

use super::ZygotePool;
use super::watermarks::PERIOD;
use super::zygote::{Zygote, ZygoteTask};
use crate::error::PlatformError;
use crate::open_files;
use crate::snapshots::{ParentRef, SeedSnapshot, ZygoteTemplate};

impl ZygotePool {
    /// Keeps the zygote pool filled as long as it exists.
    pub(super) async fn refill(zygote_pool: Weak<Self>) {
        loop {
            let Some(zygote_pool) = zygote_pool.upgrade() else {
                return;
            };
            let next = match zygote_pool.fill().await {
                Ok(next) => next,
                Err(error) => {
                    if zygote_pool.stopped.load(Ordering::Acquire) {
                        return;
                    }
                    // The next request makes its own sandbox and reports what is wrong.
                    tracing::warn!(error = %Line(error), "a zygote could not be made");
                    None
                }
            };
            #[cfg(feature = "measuring")]
            zygote_pool.filled.notify_waiters();
            // Waits without keeping the zygote pool alive: its `Drop` notifies.
            let changed = zygote_pool.changed.clone();
            drop(zygote_pool);
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
                let mut watermarks = self.watermarks.lock();
                let next = watermarks.decay(now);
                (watermarks.wanted(), next)
            };
            let todo = self.ready.lock().next(wanted, now);
            let (generic, parent) = match todo {
                ZygoteTask::End(ended) => {
                    // The spawner ends it; nothing waits for that.
                    drop(ended);
                    continue;
                }
                ZygoteTask::Specialise(generic, parent) => (Some(generic), Some(parent)),
                ZygoteTask::Make(parent) => (None, parent),
                ZygoteTask::Idle(false) => return Ok(next),
                ZygoteTask::Idle(true) => {
                    let later = now + PERIOD;
                    return Ok(Some(next.map_or(later, |next| next.min(later))));
                }
            };
            // Clients and requests come first: a request that finds none makes its own.
            if generic.is_none() && open_files::are_scarce() {
                return Ok(Some(now + PERIOD));
            }
            let name = parent.as_ref().map(ParentRef::of);
            let made = self.make_in_background(generic, parent).await?;
            let mut ready_zygotes = self.ready.lock();
            let is_abandoned =
                name.is_some_and(|name| ready_zygotes.record_specialisation(&name, made.is_err()));
            match made {
                // [`ZygotePool::stop`] sets `stopped` before it empties the pool.
                Ok(_) if self.stopped.load(Ordering::Acquire) => {
                    return Err(PlatformError::SpawnerGone);
                }
                Ok(made) => ready_zygotes.put(made),
                Err(why) => self.record_specialisation_failure(&why, is_abandoned),
            }
        }
    }

    /// Makes a sandbox for an instance ahead of requests, when nothing else wants to run. Like the
    /// ready ones, which are left to requests, it is specialised for `parent` if possible.
    ///
    /// # Errors
    /// Returns an error if none can be made.
    pub async fn make_for(&self, parent: &Arc<SeedSnapshot>) -> Result<Zygote, PlatformError> {
        match self.make_in_background(None, Some(parent.clone())).await? {
            Ok(ready) => Ok(ready),
            Err(why) => {
                self.record_specialisation_failure(&why, false);
                self.make_generic().await
            }
        }
    }

    /// Counts a zygote that could not be specialised, and logs a warning; or an error, if no other
    /// will be specialised for that seed.
    fn record_specialisation_failure(&self, why: &str, is_abandoned: bool) {
        self.specialise_failures.fetch_add(1, Ordering::Relaxed);
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

    /// Specialises `generic`, or a new sandbox, for `parent`, if there is one. The inner error says
    /// why that is not possible.
    async fn make_in_background(
        &self,
        generic: Option<Zygote>,
        parent: Option<Arc<SeedSnapshot>>,
    ) -> Result<Result<Zygote, String>, PlatformError> {
        let template = match parent.map(ZygoteTemplate::new).transpose() {
            Ok(template) => template,
            Err(errno) => return Ok(Err(errno.to_string())),
        };
        match (generic, &template) {
            (Some(generic), Some(template)) => generic.specialise(template).await,
            (_, template) => {
                let maker = self.maker()?;
                Zygote::make_in_background(&maker, self.wall_clock, template.as_ref()).await
            }
        }
    }
}
