//! Making seeds of functions that are known: for requests, and ahead of them.
//!
//! A request that finds no seed has it made at once, whatever else is being made, and
//! is served from an ancestor meanwhile; where the missing steps take long, it waits
//! for the seed instead of doing them for itself alone. What no request asked for is
//! made when nothing else is: few at a time, and none is begun while a making that clients wait
//! for needs a processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faasw_abi::wire::FunctionKind;
use faasw_common::Lack;
use faasw_seedtree::Key;
use tokio::time::{Instant, interval_at};

use super::function::{Function, FunctionVersion};
use super::graph::{For, Held, Seeds};
use super::spec::{FunctionSpec, Known};
use super::tree::Tree;
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::snapshots::KeptCode;

/// An initialisation that takes longer is waited for rather than repeated by every
/// request that comes meanwhile.
const REPEATED_MOST: Duration = Duration::from_secs(1);

/// Room for what an ancestor's instance does beside initialising: it loads the code.
const LOADING: Duration = Duration::from_millis(10);

/// How many times what is known it may take under load, and still fit a request's limits.
const MARGIN: u32 = 4;

/// How long a request waits while the making of its seed is queued for a slot: as long as most
/// clients wait. Then it is refused, and the response says why.
const QUEUED_MAX: Duration = Duration::from_secs(30);

/// How often a request that has waited that long finds out whether its seed is still queued.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Function {
    /// Has its seed made in the background for requests, unless that is so already.
    pub(crate) fn make_again(&self) {
        self.seeds().make(self.key(), For::Clients);
    }

    /// Its seed once it is made, for a request whose response must begin within `limit`, where it
    /// would take the request too long to do without; at once nothing where it would not. What
    /// there is an image of is read quicker than it is done without. A script's is held in any
    /// case, and that of what has files: nothing else can be forked for it, and nobody is to wait
    /// for it who has a turn.
    ///
    /// # Errors
    /// Why it was not made.
    pub(crate) async fn worth_waiting_for(
        &self,
        limit: Duration,
    ) -> Result<Option<Held>, InvokeError> {
        let is_quick = || !self.is_read() && self.is_quick(limit);
        if self.is_fed() {
            if let Some(held) = self.held() {
                return Ok(Some(held));
            }
        } else if self.is_in_memory() || is_quick() {
            return Ok(None);
        }
        let seeds = self.seeds();
        tokio::select! {
            made = seeds.obtain(self.key()) => match made {
                Err(SeedError::Platform(PlatformError::RuntimeEnds)) => Ok(None),
                made => made.map(Some).map_err(of_a_request),
            },
            behind = queued_too_long(seeds, self.key()) => {
                Err(InvokeError::SeedQueued { behind })
            }
        }
    }

    /// Whether its seed comes from an image in less time than it is done without.
    fn is_read(&self) -> bool {
        let (version, seeds) = (self.version(), self.seeds());
        let is_quick = version.has_image() && seeds.reads_in_parts() || version.has_quick_image();
        is_quick && version.after_init() != Some(false)
    }

    /// Whether a request of this limit may do the steps that lead to its seed.
    fn is_quick(&self, limit: Duration) -> bool {
        if self.version().after_init() == Some(false) {
            // A seed would not save it the initialisation.
            return true;
        }
        let takes = self.version().instantiation();
        takes <= REPEATED_MOST && (takes + LOADING) * MARGIN <= limit
    }

    /// Has its seed made when nothing else is, unless a request asks for it before, or half of the
    /// memory for seeds is taken.
    pub(crate) fn make_in_the_background(self: &Arc<Self>) {
        let is_too_full = |function: &Self| {
            let is_half_empty = function.seeds().is_half_empty();
            (!is_half_empty).then_some(Lack::SeedMemory)
        };
        let making = self.made_ahead(is_too_full);
        self.seeds().runtime().spawn(async move {
            // It is told in the log why it was not made.
            let _ = making.await;
        });
    }

    /// Makes its seed when nothing else is, for instances ahead of requests, as far as it has room
    /// among all that seeds may take.
    ///
    /// # Errors
    /// What keeps it from being there.
    pub(crate) fn made_for_instances(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<(), Lack>> + Send + use<> {
        self.made_ahead(Self::has_no_room_for_seed)
    }

    /// Makes its seed when nothing else is, unless it is there by then, or something it `lacks`
    /// says no.
    fn made_ahead(
        self: &Arc<Self>,
        lacks: fn(&Self) -> Option<Lack>,
    ) -> impl Future<Output = Result<(), Lack>> + Send + use<> {
        let (owner, memory) = (self.holding().owner(), self.memory_limit());
        let permit = self.seeds().permit_ahead(owner, memory);
        // The function may be removed before it has its permit, and the pool end.
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
                match lacks(&function) {
                    Some(lack) => return Err(lack),
                    None => function.seeds().ask(function.key(), For::Later(permit)),
                }
            };
            let Ok(Ok(held)) = made.await else {
                return Err(Lack::Failures);
            };
            let Some(function) = function.upgrade() else {
                return Ok(());
            };
            function.note_seed(&held);
            // What does not fit goes at once.
            drop(held);
            if function.is_in_memory() {
                Ok(())
            } else {
                Err(lacks(&function).unwrap_or(Lack::SeedMemory))
            }
        }
    }
}

impl Function {
    /// Has its seed made or read when nothing else is, and an image of it written where there is
    /// none that is good; then it rests, unless somebody has taken it meanwhile.
    pub(crate) async fn have_image(&self) {
        let seeds = self.seeds();
        let (owner, memory) = (self.holding().owner(), self.memory_limit());
        let was_there = AtomicBool::new(false);
        let permit = || async {
            let permit = seeds.permit_ahead(owner, memory).await;
            was_there.store(self.is_in_memory(), Ordering::Relaxed);
            For::Later(permit)
        };
        // The log has the reason if it was not made.
        if let Ok(frozen) = seeds.obtain_for(self.key(), permit).await {
            seeds.images_are_written().await;
            drop(frozen);
            if !was_there.load(Ordering::Relaxed) {
                seeds.let_rest(self.key());
            }
        }
    }
}

/// Waits until a seed has been in the queue for a slot for too long. Returns how many come before
/// it then.
async fn queued_too_long(seeds: &Arc<Seeds>, key: Key) -> usize {
    let mut looks = interval_at(Instant::now() + QUEUED_MAX, LOOK_AGAIN);
    loop {
        looks.tick().await;
        let progress = seeds.progress(key);
        if let Some(behind) = progress.and_then(|progress| progress.queued_behind()) {
            return behind;
        }
    }
}

/// What a request hears of a seed that was not made.
fn of_a_request(error: SeedError) -> InvokeError {
    match error {
        SeedError::Function(error) => error,
        SeedError::Platform(error) => error.into(),
        other => InvokeError::LoadFailed {
            report: other.to_string(),
        },
    }
}

/// Takes up a function of which a seed was made before. This one's is made when a request
/// asks for it, or whoever has it.
///
/// # Errors
/// When its memory or configuration is more than a guest can have.
pub fn adopt(
    tree: &Tree,
    spec: &FunctionSpec,
    kind: FunctionKind,
    code: &Arc<KeptCode>,
    time_limit: Duration,
    known: Known,
) -> Result<FunctionVersion, SeedError> {
    let function = tree.new_function(spec, kind, code, time_limit, Some(known))?;
    tree.add(&function);
    Ok(FunctionVersion::new(function))
}
