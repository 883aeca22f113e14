//! The graph of a pool's seeds, behind its lock, and the tasks that do its jobs.
//!
//! The lock is held only while a decision is made. The caller sends, runs and drops what the graph
//! returns after releasing the lock. Requests find their seed in its slot; they come here only if
//! it is not there.

mod permits;
mod restore;
mod seed_hold;

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use faasw_common::Lock;
use faasw_common::text::Line;
use faasw_seedtree::graph::{
    Budget, Job, OwnerEvictions, Resting, SeedHandle, SnapshotRequest, Ticket,
};
use faasw_seedtree::{Graph, Key, Owner};
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, oneshot};

pub use self::seed_hold::SeedHold;
use super::function_step::FunctionStep;
use super::image_store::ImageStore;
use super::seed_build::SeedBuildContext;
use super::seed_step::SeedStep;
use super::slots::{SeedPermit, SeedProgress, SeedRequest, SeedSlots};
use crate::error::{PlatformError, SeedError};
use crate::fair_slots::Urgency;
use crate::images::Images;
use crate::sandboxes::ZygotePool;
use crate::snapshots::{SeedSnapshot, has_failed, wait_fully_loaded};

/// A waiter that receives the result for a seed.
type Waiter = oneshot::Sender<Result<SeedHold, SeedError>>;

/// How often a seed that was found to be damaged is requested again: once for each source that it
/// is read from.
const REBUILDS_MAX: u32 = 4;

/// Waits for a seed. Resolves to an error if the result is lost because the runtime ends. Dropping
/// it removes the waiter.
#[derive(Debug)]
pub struct SeedFuture {
    receiver: oneshot::Receiver<Result<SeedHold, SeedError>>,
    seeds: Weak<Seeds>,
    key: Key,
}

impl Future for SeedFuture {
    type Output = Result<Result<SeedHold, SeedError>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context)
    }
}

impl Drop for SeedFuture {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        self.receiver.close();
        if let Some(seeds) = self.seeds.upgrade() {
            let gone = seeds.lock().remove_waiters(self.key, Waiter::is_closed);
            seeds.drop_seeds(gone);
        }
    }
}

/// The reason to make a seed.
#[derive(Clone, Debug)]
pub enum SeedPurpose {
    /// A request or a deployment.
    Clients,
    /// Later requests. The permit was acquired before the making begins, so that a client that
    /// wants the seed meanwhile does not wait for a background permit.
    Background(Arc<SeedPermit>),
}

/// A seed that is being made.
#[derive(Debug)]
struct SeedInProgress {
    name: String,
    progress: Arc<SeedProgress>,
}

/// The memory that an owner holds, including its seeds.
pub trait OwnerAccount: std::fmt::Debug + Send + Sync {
    /// Evicts until the owner is within its budget.
    fn fit(&self);
}

/// All seeds of a pool: those that can be made, and those in memory.
#[derive(Debug)]
pub struct Seeds {
    graph: Lock<Graph<SeedSnapshot, SeedStep, Waiter>>,
    /// The zygote pool. Functions hold these seeds for longer than the pool may exist.
    zygote_pool: Weak<ZygotePool>,
    slots: Arc<SeedSlots>,
    budget: Budget,
    /// The seeds that are being made.
    in_progress: Lock<BTreeMap<Key, SeedInProgress>>,
    /// Notifies the makings that a handle was dropped, after which a seed may not be wanted.
    forgotten: Notify,
    /// The accounts of the owners that have limits of their own.
    accounts: Lock<BTreeMap<Owner, Weak<dyn OwnerAccount>>>,
    /// The images of seeds that are not in memory, if images are stored.
    images: Option<ImageStore>,
    /// The runtime that the pool was started in. A caller may run in another one, which may stop.
    runtime: Handle,
}

impl Seeds {
    /// Creates an empty set of seeds. Their memory is limited to `budget`, except for seeds that
    /// stay forever. Must be called inside a Tokio runtime; tasks of the runtime make the seeds or
    /// read them from `images`.
    pub fn new(
        zygote_pool: &Arc<ZygotePool>,
        slots: Arc<SeedSlots>,
        budget: Budget,
        images: Option<Arc<Images>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            graph: Lock::default(),
            zygote_pool: Arc::downgrade(zygote_pool),
            slots,
            budget,
            in_progress: Lock::default(),
            forgotten: Notify::new(),
            accounts: Lock::default(),
            images: images.map(|images| {
                let seeds = this.clone();
                ImageStore::open(images, move |owner| {
                    if let Some(seeds) = seeds.upgrade() {
                        seeds.holder_dropped(owner);
                    }
                })
            }),
            runtime: Handle::current(),
        })
    }

    /// Counts an owner's seeds in this account from now on.
    pub fn register_account(&self, owner: Owner, account: Weak<dyn OwnerAccount>) {
        self.accounts.lock().insert(owner, account);
    }

    /// Removes the account of an owner that has no more seeds.
    pub fn unregister_account(&self, owner: Owner) {
        let mut accounts = self.accounts.lock();
        // A new account may have been opened meanwhile.
        if accounts
            .get(&owner)
            .is_some_and(|account| account.strong_count() == 0)
        {
            accounts.remove(&owner);
        }
    }

    /// Returns the runtime that the pool was started in.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the slots for making seeds.
    pub fn slots(&self) -> &Arc<SeedSlots> {
        &self.slots
    }

    /// Returns a handle of the seed that `recipe` makes of `parent`; the caller has to
    /// [`forget`](Self::forget) it. Seeds that no function can do without stay forever.
    ///
    /// # Errors
    /// Returns [`PlatformError::Protocol`] if there can be no such seed.
    pub fn define(
        &self,
        parent: Option<Key>,
        owner: Owner,
        recipe: SeedStep,
    ) -> Result<SeedHandle<SeedSnapshot, SeedStep>, PlatformError> {
        let (step, is_pinned) = (recipe.digest(), recipe.is_pinned());
        let now = Instant::now();
        let defined = self
            .lock()
            .define(parent, owner, step, recipe, is_pinned, now);
        defined.map_err(|error| PlatformError::Protocol(error.to_string()))
    }

    /// Drops a handle.
    pub fn forget(&self, key: Key) {
        let gone = self.lock().forget(key);
        self.drop_seeds(gone);
        self.forgotten.notify_waiters();
    }

    /// Returns a future for a seed. Starts the jobs that make it, unless it is in memory or under
    /// way.
    pub fn request(self: &Arc<Self>, key: Key, purpose: SeedPurpose) -> SeedFuture {
        let (waiter, receiver) = oneshot::channel();
        self.begin_request(key, purpose, Some(waiter));
        SeedFuture {
            receiver,
            seeds: Arc::downgrade(self),
            key,
        }
    }

    /// Makes a seed for a client, unless it is there, and waits for it. If its image or an ancestor
    /// turns out to be damaged, the seed is made again.
    ///
    /// # Errors
    /// Returns the reason why the seed was not made.
    pub async fn obtain(self: &Arc<Self>, key: Key) -> Result<SeedHold, SeedError> {
        self.obtain_for(key, || ready(SeedPurpose::Clients)).await
    }

    /// As [`Self::obtain`], for the reason that `reason` returns, which is called for each attempt.
    ///
    /// A permit in it is held by the making alone. If another making of the seed is under way, the
    /// permit is dropped before this waits: the other one may need it.
    ///
    /// # Errors
    /// Returns the reason why the seed was not made.
    pub async fn obtain_for<F>(
        self: &Arc<Self>,
        key: Key,
        reason: impl Fn() -> F,
    ) -> Result<SeedHold, SeedError>
    where
        F: Future<Output = SeedPurpose>,
    {
        let mut left = REBUILDS_MAX;
        loop {
            let reason = reason().await;
            match self.request(key, reason).await {
                Ok(Err(SeedError::Platform(PlatformError::SeedUnreadable))) if left > 0 => {
                    left -= 1
                }
                Ok(made) => return made,
                Err(_) => return Err(PlatformError::RuntimeEnds.into()),
            }
        }
    }

    /// Starts making a seed without a waiter, unless it is in memory or under way.
    pub fn start_making(self: &Arc<Self>, key: Key, purpose: SeedPurpose) {
        self.begin_request(key, purpose, None);
    }

    fn begin_request(self: &Arc<Self>, key: Key, purpose: SeedPurpose, waiter: Option<Waiter>) {
        let (answer, failed) = {
            let mut graph = self.lock();
            let failed = discard_failed(&mut graph, key);
            (graph.request(key, waiter), failed)
        };
        self.drop_seeds(failed);
        match answer {
            SnapshotRequest::InMemory(frozen, waiter) => {
                // The receiver still exists: the caller of this function holds it.
                let hold = SeedHold::new(self, frozen);
                let _ = waiter.map(|waiter| waiter.send(Ok(hold)));
            }
            SnapshotRequest::Build(job) => self.start(job, purpose),
            // A waiter that was not added finds its channel closed.
            SnapshotRequest::UnderWay | SnapshotRequest::Unknown(_) => {}
        }
    }

    /// Returns the nearest of a seed and its ancestors that is in memory, and the missing steps
    /// from there, in order.
    pub fn nearest(&self, key: Key) -> Option<(Arc<SeedSnapshot>, Vec<Arc<SeedStep>>)> {
        let (nearest, failed) = {
            let mut graph = self.lock();
            let failed = discard_failed(&mut graph, key);
            (graph.nearest(key), failed)
        };
        self.drop_seeds(failed);
        nearest
    }

    fn start(self: &Arc<Self>, job: Job<SeedSnapshot, SeedStep>, purpose: SeedPurpose) {
        let key = job.ticket.key();
        let progress = Arc::<SeedProgress>::default();
        let in_progress = SeedInProgress {
            name: job.recipe.name().to_owned(),
            progress: progress.clone(),
        };
        self.in_progress.lock().insert(key, in_progress);
        let running = RunningJob {
            seeds: self.clone(),
            ticket: Some(job.ticket),
            purpose: purpose.clone(),
        };
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let Job {
                ticket,
                owner,
                recipe,
                parent,
            } = job;
            let seeds = running.seeds.clone();
            let making = async {
                // Restoring from an image needs no permit, so it does not wait for other
                // initialisations.
                let begun = Instant::now();
                let restored = seeds.restored(key, &recipe, parent.as_ref(), owner).await;
                let (restored, code) = restored?;
                if let Some(frozen) = restored {
                    return Ok((frozen, begun.elapsed()));
                }
                // The result is compared with the parent, so the parent has to be complete.
                if let Some(parent) = &parent
                    && !wait_fully_loaded(parent).await
                {
                    return Err(PlatformError::SeedUnreadable.into());
                }
                let permit = match purpose {
                    // A shared seed is made for other functions, too, so the permit does not apply
                    // to it.
                    SeedPurpose::Background(permit) if permit.is_of(owner) => permit,
                    SeedPurpose::Background(_) | SeedPurpose::Clients => {
                        let request = SeedRequest {
                            owner,
                            urgency: Urgency::Foreground,
                            memory: recipe.memory(),
                        };
                        Arc::new(seeds.current_slots().permit(request, &progress).await)
                    }
                };
                let zygote_pool = seeds
                    .zygote_pool
                    .upgrade()
                    .ok_or(PlatformError::SpawnerGone)?;
                let started = Instant::now();
                let context = SeedBuildContext {
                    zygote_pool: &zygote_pool,
                    permit: &permit,
                };
                let made = recipe.make(context, parent.as_ref()).await?;
                drop(permit);
                if let Some(code) = code {
                    recipe.attach_code(&made, code);
                }
                let frozen = Arc::new(made.owned_by(owner));
                seeds.queue_image_write(&recipe, &frozen);
                seeds.gather_code(key, &recipe, &frozen);
                Ok((frozen, started.elapsed()))
            };
            let made = tokio::select! {
                made = making => Some(made),
                () = seeds.wait_until_unwanted(ticket) => None,
            };
            match &made {
                // Functions descend from this seed.
                Some(Ok((frozen, _))) if matches!(*recipe, SeedStep::Link) => {
                    if let Some(zygote_pool) = seeds.zygote_pool.upgrade() {
                        zygote_pool.set_base(frozen);
                    }
                }
                // The seed is there, or its making was abandoned.
                Some(Ok(_)) | None => {}
                Some(Err(error)) => {
                    let (seed, error) = (recipe.name(), Line(error));
                    tracing::warn!(seed, %error, "a seed was not made");
                }
            }
            drop(parent);
            running.end(made.unwrap_or_else(|| Err(PlatformError::Abandoned.into())));
            seeds.holder_dropped(owner);
        });
    }

    /// Recounts a seed of `owner` that takes more memory than when it was last counted.
    fn recount(&self, key: Key, owner: Owner) {
        self.lock().recount(key);
        self.holder_dropped(owner);
    }

    /// Evicts if needed after a holder of one of `owner`'s seeds has dropped it. The seed may be
    /// due for eviction, and the caller that wanted to evict it earlier does not retry.
    pub fn holder_dropped(&self, owner: Owner) {
        // Ending instances needs a runtime, and this thread may not belong to one.
        let _inside = self.runtime.enter();
        let account = self.accounts.lock().get(&owner).and_then(Weak::upgrade);
        match account {
            Some(account) => account.fit(),
            None => self.fit_after(owner),
        }
    }

    /// Returns the images of seeds, if images are stored.
    pub fn image_store(&self) -> Option<&ImageStore> {
        self.images.as_ref()
    }

    /// Returns the size in bytes of a seed's image, as noted last.
    pub fn image_bytes(&self, recipe: &SeedStep) -> Option<u64> {
        self.images.as_ref()?.known_bytes(recipe)
    }

    /// Waits until the images of all seeds made so far are written.
    pub async fn wait_for_image_writes(&self) {
        if let Some(image_store) = &self.images {
            image_store.flush().await;
        }
    }

    /// Returns whether seeds take at most half of their budget.
    pub fn is_half_empty(&self) -> bool {
        self.bytes() <= self.budget.bytes / 2
    }

    /// Returns the unused bytes of the seeds' budget.
    pub fn free_budget(&self) -> u64 {
        self.budget.bytes.saturating_sub(self.bytes())
    }

    /// Returns whether seeds exceed their budget, which happens while too many are in use.
    pub fn is_over_budget(&self) -> bool {
        self.lock().is_over(self.budget)
    }

    /// Evicts a seed without holders that was loaded only to write its image.
    pub fn evict_if_unused(&self, key: Key) {
        let gone = self.lock().evict(&[key]);
        self.evicted(gone);
    }

    /// Notes for a function version whether it has an image.
    pub fn note_stored_image(&self, version: &FunctionStep) {
        if let (Some(image_store), Some(id)) = (&self.images, version.image_id()) {
            version.note_image(image_store.bytes_of(id));
        }
    }

    /// Queues a seed's image to be written, after those of earlier seeds.
    pub fn queue_image_write(&self, recipe: &Arc<SeedStep>, frozen: &Arc<SeedSnapshot>) {
        if let Some(image_store) = &self.images {
            image_store.queue_write(recipe, frozen);
        }
    }

    /// Waits until the result of a job is no longer wanted.
    async fn wait_until_unwanted(&self, ticket: Ticket) {
        loop {
            let mut forgotten = std::pin::pin!(self.forgotten.notified());
            // From here on no notification is missed.
            forgotten.as_mut().enable();
            if !self.lock().is_wanted(ticket) {
                return;
            }
            forgotten.await;
        }
    }

    /// Evicts seeds until all together fit their budget, after an owner may have dropped one.
    pub fn fit_after(&self, owner: Owner) {
        let gone = self.lock().fit_after(owner, self.budget, Instant::now());
        self.evicted(gone);
    }

    /// Evicts seeds without holders until all together take at most `budget` bytes.
    #[cfg(feature = "trial")]
    pub fn fit_to(&self, budget: u64) {
        let gone = self.lock().fit(budget, Instant::now());
        self.evicted(gone);
    }

    /// Returns what to evict so that an owner's seeds and resting instances fit `budget` bytes.
    pub fn fit_owner(&self, owner: Owner, budget: u64, resting: &[Resting]) -> OwnerEvictions {
        self.lock()
            .fit_owner(owner, budget, resting, Instant::now())
    }

    /// Evicts those of `keys` that have no holders.
    pub fn evict(&self, keys: &[Key]) {
        let gone = self.lock().evict(keys);
        for (_, frozen) in &gone {
            let bytes = frozen.bytes();
            tracing::debug!(
                bytes,
                "a seed was evicted: its function exceeded its memory"
            );
        }
        self.drop_seeds(gone.into_iter().map(|(_, frozen)| frozen).collect());
    }

    fn evicted(&self, gone: Vec<(Key, Arc<SeedSnapshot>)>) {
        for (_, frozen) in &gone {
            tracing::debug!(bytes = frozen.bytes(), "a seed was evicted");
        }
        self.drop_seeds(gone.into_iter().map(|(_, frozen)| frozen).collect());
    }

    /// Drops seeds that have left the graph, and the sandboxes that are specialised for them. The
    /// graph's lock is not held, however long that takes.
    fn drop_seeds(&self, gone: Vec<Arc<SeedSnapshot>>) {
        if let Some(zygote_pool) = self.zygote_pool.upgrade() {
            zygote_pool.forget(&gone);
        }
    }

    /// Returns how many waiters a seed has.
    #[cfg(feature = "trial")]
    pub fn waiting(&self, key: Key) -> usize {
        let described = self.lock().describe(Instant::now());
        let of = described.iter().find(|node| node.key == key);
        of.map_or(0, |node| node.waiters)
    }

    /// Returns the bytes of the seeds of all functions and engines.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Recounts these seeds and their ancestors, and returns the bytes of an owner's seeds. They
    /// may have grown: holes of a seed that its instances have read take memory.
    pub fn recount_bytes(&self, owner: Owner, keys: impl Iterator<Item = Key>) -> u64 {
        let mut graph = self.lock();
        keys.for_each(|key| graph.recount(key));
        graph.bytes_of(owner)
    }

    fn lock(&self) -> MutexGuard<'_, Graph<SeedSnapshot, SeedStep, Waiter>> {
        self.graph.lock()
    }
}

/// Removes a seed and its ancestors as far as their memory cannot be completed. Their reader may
/// not have reported that yet.
fn discard_failed(
    graph: &mut Graph<SeedSnapshot, SeedStep, Waiter>,
    key: Key,
) -> Vec<Arc<SeedSnapshot>> {
    graph.discard_line(key, has_failed)
}

/// A running job. Its end is reported to the graph however the task ends.
struct RunningJob {
    seeds: Arc<Seeds>,
    ticket: Option<Ticket>,
    purpose: SeedPurpose,
}

impl RunningJob {
    fn end(mut self, made: Result<(Arc<SeedSnapshot>, std::time::Duration), SeedError>) {
        self.report(made);
    }

    fn report(&mut self, made: Result<(Arc<SeedSnapshot>, std::time::Duration), SeedError>) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        self.seeds.in_progress.lock().remove(&ticket.key());
        let done = self.seeds.lock().finish_job(ticket, made);
        self.seeds.drop_seeds(done.gone);
        for (waiter, made) in done.results {
            let held = made.map(|frozen| SeedHold::new(&self.seeds, frozen));
            // A waiter may have gone away meanwhile.
            let _ = waiter.send(held);
        }
        // A permit is for one guest. The jobs that follow a shared seed may belong to other
        // functions or to another version, and need permits of their own.
        let mut ahead = match &self.purpose {
            SeedPurpose::Background(permit) => Some(permit.clone()),
            SeedPurpose::Clients => None,
        };
        for job in done.jobs {
            let permit = ahead.take_if(|permit| permit.is_of(job.owner));
            self.seeds.start(
                job,
                permit.map_or(SeedPurpose::Clients, SeedPurpose::Background),
            );
        }
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        // The runtime ends, or a step panicked.
        if self.ticket.is_some() {
            self.report(Err(PlatformError::RuntimeEnds.into()));
        }
    }
}
