//! The choice of the microVM that serves a request, and of those that are made ahead of requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use faasw_abi::channel::ChannelKind;
use faasw_common::text::Line;
use tokio::time::timeout;

use super::Pool;
use crate::ablation::Mechanism;
use crate::error::{InvokeError, PlatformError};
use crate::instances::Instance;
use crate::invocation::{Invocation, StartOutcome};
use crate::sandboxes::Zygote;
use crate::seeds::{ForkOrigin, FunctionVersion, SeedHold};
use crate::sink::Served;

/// How long a request waits for an instance that is being reset, at most: about as long as a fork
/// takes.
const RESET_WAIT: Duration = Duration::from_millis(2);

/// The microVM that serves a request.
pub(super) struct SelectedInstance {
    pub(super) instance: Instance,
    /// The kind of sandbox that it is.
    pub(super) served: Served,
}

impl SelectedInstance {
    fn warm(instance: Instance) -> Self {
        let served = match instance.uses {
            0 => Served::Ready,
            _ => Served::Warm,
        };
        Self { instance, served }
    }
}

impl Pool {
    /// Returns whether there are processors to spare, so that more work may be spent on an earlier
    /// answer.
    pub(super) fn is_quiet(&self) -> bool {
        !Mechanism::EarlyEnd.is_off() && self.inner.admission().taken() <= self.inner.processors
    }

    /// Returns the best microVM for a request. `seed` is the function's seed, if the request waited
    /// for it.
    pub(super) async fn select(
        &self,
        version: &FunctionVersion,
        seed: Option<SeedHold>,
    ) -> Result<SelectedInstance, PlatformError> {
        match Self::take_warm(version).await {
            Some(instance) => {
                seed.into_iter().for_each(SeedHold::leave_to_instance);
                Ok(SelectedInstance::warm(instance))
            }
            // Boxed, because most requests find a warm instance.
            None => Box::pin(self.take(version, seed)).await,
        }
    }

    /// Returns an instance that waits for a request of this function, preferably one that polls for
    /// it.
    async fn take_warm(version: &FunctionVersion) -> Option<Instance> {
        let warm_instances = version.warm_instances();
        if let Some(pending) = warm_instances.wait_for_hot()
            && let Ok(instance) = pending.await
        {
            return Some(instance);
        }
        warm_instances.take()
    }

    /// Returns the best microVM for a function without a warm instance: an instance that is just
    /// being reset, or else a sandbox that is to be forked from the function's seed or an ancestor.
    async fn take(
        &self,
        version: &FunctionVersion,
        seed: Option<SeedHold>,
    ) -> Result<SelectedInstance, PlatformError> {
        if !Mechanism::ResetWait.is_off()
            && let Some(pending) = version.warm_instances().wait()
        {
            self.make_one_more(version);
            if let Ok(Ok(instance)) = timeout(RESET_WAIT, pending).await {
                return Ok(SelectedInstance::warm(instance));
            }
        }
        let origin = self.origin(version, seed.as_ref()).await?;
        let taken = self
            .inner
            .zygote_pool
            .take(&origin.from, origin.parent())
            .await;
        let (ready, was_ready) = taken.inspect_err(|error| {
            // The next request then finds the descriptors that this one lacked.
            if matches!(error, PlatformError::OpenFiles) {
                self.inner.keeper.end_oldest();
            }
        })?;
        let served = match (origin.is_own(), was_ready) {
            (true, true) => Served::Zygote,
            (true, false) => Served::Made,
            (false, _) => Served::Ancestor,
        };
        let instance = Self::instance(ready, origin)?;
        Ok(SelectedInstance { instance, served })
    }

    /// Returns what an instance is to be forked from: `seed`, or the best snapshot in memory. It is
    /// not evicted while the result is held.
    async fn origin(
        &self,
        version: &FunctionVersion,
        seed: Option<&SeedHold>,
    ) -> Result<ForkOrigin, PlatformError> {
        if let Some(seed) = seed {
            return Ok(ForkOrigin::own(Arc::clone(seed)));
        }
        if let Some(frozen) = version.frozen() {
            return Ok(ForkOrigin::own(frozen));
        }
        if version.requires_own_seed() {
            let what =
                "a seed went with the microVM that it was for, and nothing else can be forked"
                    .to_owned();
            return Err(PlatformError::Protocol(what));
        }
        version.request_rebuild();
        // After this, everything without a function's code is there.
        self.inner.tree.linked().await?;
        version.nearest().await
    }

    /// Returns a sandbox that is to be forked from `origin` and has the commands for the missing
    /// steps.
    fn instance(mut ready: Zygote, origin: ForkOrigin) -> Result<Instance, PlatformError> {
        for recipe in &origin.missing {
            recipe.write_commands(&mut ready.mailbox)?;
        }
        let is_own = origin.is_own();
        Ok(Instance::new(ready, origin.from, is_own, origin.code))
    }

    /// Starts an invocation again whose microVM was gone before it began. A sandbox is made for it
    /// now, which cannot have been ended yet.
    pub(super) async fn start_again(
        &self,
        invocation: &mut Invocation,
        version: &FunctionVersion,
        head: &[u8],
    ) -> Result<StartOutcome, InvokeError> {
        // The seed may have gone with the microVM.
        let seed = if version.requires_own_seed() {
            version.seed_if_required(Duration::ZERO).await?
        } else {
            None
        };
        let origin = self.origin(version, seed.as_ref()).await?;
        let served = if origin.is_own() {
            Served::Made
        } else {
            Served::Ancestor
        };
        let mut ready = self.inner.zygote_pool.make().await?;
        let quiet = self.is_quiet();
        ready
            .mailbox
            .open(ChannelKind::Invocation, head, false, quiet)?;
        invocation.open_services(&mut ready.mailbox)?;
        invocation.restart_in(Self::instance(ready, origin)?, served)?;
        invocation.start().await
    }

    /// Makes one more instance of a function, because requests have to wait.
    fn make_one_more(&self, version: &FunctionVersion) {
        // Twice as many instances as requests are enough, however long a reset takes.
        let under_way = version
            .busy()
            .saturating_sub(version.warm_instances().pending())
            + 1;
        if version.busy() < 2 * under_way {
            self.make_in_background(version);
        }
    }

    /// Forks an instance that no request waits for.
    pub(super) async fn fork_without_request(
        version: &FunctionVersion,
        ready: Zygote,
        origin: ForkOrigin,
    ) -> Result<Instance, PlatformError> {
        let mut instance = Self::instance(ready, origin)?;
        let number = version.function_memory().number();
        instance.fork(version.ram_bytes(), number).await?;
        Ok(instance)
    }

    /// Makes one more instance of a function in the background.
    fn make_in_background(&self, version: &FunctionVersion) {
        let Some(frozen) = version.frozen() else {
            return;
        };
        if frozen.working_set().is_wanted() || !version.has_budget_for_instance(&frozen) {
            return;
        }
        let Some(making) = version.warm_instances().make_permit() else {
            return;
        };
        let (zygote_pool, version) = (self.inner.zygote_pool.clone(), version.clone());
        tokio::spawn(async move {
            if let Some(pending) = version.warm_instances().announce(0) {
                let origin = ForkOrigin::own(frozen.clone());
                let made = async {
                    let (ready, _) = zygote_pool.take(&frozen, origin.parent()).await?;
                    Self::fork_without_request(&version, ready, origin).await
                };
                match made.await {
                    Ok(instance) => {
                        // The bytes that are private at once, before the instance runs.
                        pending.keep_warm(instance, frozen.bytes_of_new(), Instant::now());
                    }
                    Err(error) => {
                        tracing::debug!(error = %Line(error), "an instance could not be made ahead \
                             of requests");
                    }
                }
            }
            drop(making);
            drop(frozen);
            version.shrink_to_budget();
        });
    }
}
