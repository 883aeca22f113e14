//! Making seeds of known functions: for requests, and ahead of them.
//!
//! A request that finds no seed starts its making at once, whatever else is being made, and is
//! served from an ancestor meanwhile. If the missing steps take long, the request waits for the
//! seed instead of doing them for itself alone. Seeds that no request needs yet are made in the
//! background: few at a time, and none is begun while a making that clients wait for needs a
//! processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faasw_abi::wire::FunctionKind;
use faasw_common::ShortfallCause;
use faasw_seedtree::Key;
use tokio::time::{Instant, interval_at};

use super::function::{FunctionVersion, VersionState};
use super::graph::{SeedHold, SeedPurpose, Seeds};
use super::spec::{EarlierBuild, FunctionSpec};
use super::tree::SeedTree;
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::snapshots::CodeHandle;

/// Limit of the initialisation time up to which every request repeats the initialisation while the
/// seed is missing. If it takes longer, requests wait for the seed.
const REPEATED_INIT_MAX: Duration = Duration::from_secs(1);

/// Allowance for the work of an ancestor's instance besides initialising: it loads the code.
const LOADING: Duration = Duration::from_millis(10);

/// The factor by which a known duration may grow under load and still has to fit a request's
/// limits.
const MARGIN: u32 = 4;

/// How long a request waits while the making of its seed is queued for a slot: 30 s, as long as
/// most clients wait. Then it is rejected, and the response states the reason.
const QUEUED_MAX: Duration = Duration::from_secs(30);

/// How often a request that has waited that long checks whether its seed is still queued.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

impl VersionState {
    /// Starts making its seed for requests, unless that is under way already.
    pub(crate) fn request_rebuild(&self) {
        self.seeds().start_making(self.key(), SeedPurpose::Clients);
    }

    /// Returns the seed once it is made, for a request whose response must begin within `limit`.
    /// Returns `None` at once if the seed is in memory, or if the request can do the missing steps
    /// itself in time. It waits nevertheless for a seed that is read from an image, because that is
    /// faster than initialising again. The seed of a script or of a function with files is returned
    /// in any case: nothing else can be forked for it, and no request may wait for it while it
    /// holds a run permit.
    ///
    /// # Errors
    /// Returns the reason why the seed was not made, or [`InvokeError::SeedQueued`] if its making
    /// was queued for too long.
    pub(crate) async fn seed_if_required(
        &self,
        limit: Duration,
    ) -> Result<Option<SeedHold>, InvokeError> {
        let can_repeat = || !self.is_read_from_image() && self.can_repeat_steps(limit);
        if self.requires_own_seed() {
            if let Some(held) = self.hold_seed() {
                return Ok(Some(held));
            }
        } else if self.is_in_memory() || can_repeat() {
            return Ok(None);
        }
        let seeds = self.seeds();
        tokio::select! {
            made = seeds.obtain(self.key()) => match made {
                Err(SeedError::Platform(PlatformError::RuntimeEnds)) => Ok(None),
                made => made.map(Some).map_err(to_invoke_error),
            },
            behind = queued_too_long(seeds, self.key()) => {
                Err(InvokeError::SeedQueued { behind })
            }
        }
    }

    /// Returns whether reading its seed from an image takes less time than doing without.
    fn is_read_from_image(&self) -> bool {
        let (step, seeds) = (self.step(), self.seeds());
        let is_quick = step.has_image() && seeds.reads_in_parts() || step.has_quick_image();
        is_quick && step.after_init() != Some(false)
    }

    /// Returns whether a request with this time limit can do the steps that lead to its seed.
    fn can_repeat_steps(&self, limit: Duration) -> bool {
        if self.step().after_init() == Some(false) {
            // A seed would not save it the initialisation.
            return true;
        }
        let takes = self.step().instantiation();
        takes <= REPEATED_INIT_MAX && (takes + LOADING) * MARGIN <= limit
    }

    /// Makes its seed in the background, unless a request needs it before, or half of the memory
    /// for seeds is used.
    pub fn prewarm_seed(self: &Arc<Self>) {
        let is_too_full = |function: &Self| {
            let is_half_empty = function.seeds().is_half_empty();
            (!is_half_empty).then_some(ShortfallCause::SeedMemory)
        };
        let making = self.prewarm_unless(is_too_full);
        self.seeds().runtime().spawn(async move {
            // The log contains the reason if it was not made.
            let _ = making.await;
        });
    }

    /// Makes its seed in the background, for instances ahead of requests, if the budgets for seeds
    /// have room.
    ///
    /// # Errors
    /// Returns what prevents it from being in memory.
    pub(crate) fn prewarm_for_instances(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<(), ShortfallCause>> + Send + use<> {
        self.prewarm_unless(Self::seed_shortfall_cause)
    }

    /// Makes its seed in the background, unless it is in memory by then, or `prevents` returns a
    /// reason against it.
    fn prewarm_unless(
        self: &Arc<Self>,
        prevents: fn(&Self) -> Option<ShortfallCause>,
    ) -> impl Future<Output = Result<(), ShortfallCause>> + Send + use<> {
        let (owner, memory) = (self.function_memory().owner(), self.memory_limit());
        let permit = self.seeds().background_permit(owner, memory);
        // The function may be removed, and the pool may end, before the permit is available.
        let function = Arc::downgrade(self);
        async move {
            let permit = permit.await;
            let made = {
                let Some(function) = function.upgrade() else {
                    return Ok(());
                };
                if function.is_in_memory() {
                    return Ok(());
                }
                match prevents(&function) {
                    Some(cause) => return Err(cause),
                    None => function
                        .seeds()
                        .request(function.key(), SeedPurpose::Background(permit)),
                }
            };
            let Ok(Ok(held)) = made.await else {
                return Err(ShortfallCause::Failures);
            };
            let Some(function) = function.upgrade() else {
                return Ok(());
            };
            function.record_seed_bytes(&held);
            // A seed that does not fit its budget is evicted at once.
            drop(held);
            if function.is_in_memory() {
                Ok(())
            } else {
                Err(prevents(&function).unwrap_or(ShortfallCause::SeedMemory))
            }
        }
    }
}

impl VersionState {
    /// Makes or reads its seed in the background, and writes an image of it if there is no valid
    /// one. Afterwards the seed is evicted, unless it was in memory before or is in use.
    pub async fn ensure_image(&self) {
        let seeds = self.seeds();
        let (owner, memory) = (self.function_memory().owner(), self.memory_limit());
        let was_there = AtomicBool::new(false);
        let permit = || async {
            let permit = seeds.background_permit(owner, memory).await;
            was_there.store(self.is_in_memory(), Ordering::Relaxed);
            SeedPurpose::Background(permit)
        };
        // The log has the reason if it was not made.
        if let Ok(frozen) = seeds.obtain_for(self.key(), permit).await {
            seeds.wait_for_image_writes().await;
            drop(frozen);
            if !was_there.load(Ordering::Relaxed) {
                seeds.evict_if_unused(self.key());
            }
        }
    }
}

/// Waits until the making of a seed has been queued for a slot for too long. Returns how many
/// makings are queued before it then.
async fn queued_too_long(seeds: &Arc<Seeds>, key: Key) -> usize {
    let mut checks = interval_at(Instant::now() + QUEUED_MAX, RECHECK_INTERVAL);
    loop {
        checks.tick().await;
        let progress = seeds.progress(key);
        if let Some(behind) = progress.and_then(|progress| progress.queued_behind()) {
            return behind;
        }
    }
}

/// Converts the error of a seed that was not made to that of a request.
fn to_invoke_error(error: SeedError) -> InvokeError {
    match error {
        SeedError::Function(error) => error,
        SeedError::Platform(error) => error.into(),
        other => InvokeError::LoadFailed {
            report: other.to_string(),
        },
    }
}

/// Adds a function whose seed was made before. The seed is made again when a request or another
/// caller needs it.
///
/// # Errors
/// Returns an error if the function exceeds the limits of a guest.
pub fn register_existing(
    tree: &SeedTree,
    spec: &FunctionSpec,
    kind: FunctionKind,
    code: &Arc<CodeHandle>,
    time_limit: Duration,
    known: EarlierBuild,
) -> Result<FunctionVersion, SeedError> {
    let function = tree.new_function(spec, kind, code, time_limit, Some(known))?;
    tree.add(&function);
    Ok(FunctionVersion::new(function))
}
