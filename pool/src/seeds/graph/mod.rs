//! The graph of a pool's seeds, behind its lock, and who does its jobs.
//!
//! The lock is held for as long as a decision takes. What the graph gives back is told, run
//! and dropped outside it. Requests find their seed in its slot; they come here only when it
//! is not there.

mod held;
mod permits;
mod restoring;

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use faasw_common::text::Line;
use faasw_seedtree::graph::{Asked, Budget, Defined, Job, OwnerEvictions, Resting, Ticket};
use faasw_seedtree::{Graph, Key, Owner};
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, oneshot};

pub use self::held::Held;
use self::permits::UnderWay;
use super::library::Library;
use super::making::MakingContext;
use super::recipe::Recipe;
use super::slots::{SeedPermit, SeedProgress, SeedRequest, SeedSlots};
use super::version::Version;
use crate::error::{PlatformError, SeedError};
use crate::fair_slots::Urgency;
use crate::images::Images;
use crate::sandboxes::Stock;
use crate::snapshots::{Frozen, has_failed, whole};

/// Somebody who is told what became of a seed.
type Waiter = oneshot::Sender<Result<Held, SeedError>>;

/// How often a seed is asked for again that was found to be damaged: once for each thing that it is
/// read from.
const MADE_ANEW_MAX: u32 = 4;

/// What becomes of a seed; an error where nobody says so any more, for the runtime ends.
/// Dropping it says that nobody waits.
#[derive(Debug)]
pub struct Made {
    told: oneshot::Receiver<Result<Held, SeedError>>,
    seeds: Weak<Seeds>,
    key: Key,
}

impl Future for Made {
    type Output = Result<Result<Held, SeedError>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.told).poll(context)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.told.is_terminated() {
            return;
        }
        self.told.close();
        if let Some(seeds) = self.seeds.upgrade() {
            let gone = seeds.lock().leave(self.key, Waiter::is_closed);
            seeds.let_go(gone);
        }
    }
}

/// The reason to make a seed.
#[derive(Clone, Debug)]
pub enum For {
    /// A request or a deployment.
    Clients,
    /// Later requests. The permit was acquired before the making begins, so that a client that
    /// wants the seed meanwhile does not wait for a background permit.
    Later(Arc<SeedPermit>),
}

/// What an owner holds, seeds among it, in memory.
pub trait Account: std::fmt::Debug + Send + Sync {
    /// Has it fit what the owner may hold.
    fn fit(&self);
}

/// All seeds of a pool: which there are to be made, and which are in memory.
#[derive(Debug)]
pub struct Seeds {
    graph: Mutex<Graph<Frozen, Recipe, Waiter>>,
    /// The pool's: functions have these seeds for longer than there may be a pool.
    stock: Weak<Stock>,
    slots: Arc<SeedSlots>,
    budget: Budget,
    /// Seeds on their way.
    under_way: Mutex<BTreeMap<Key, UnderWay>>,
    /// A handle is gone: what is being made may be for nobody.
    forgotten: Notify,
    /// Of those owners that have limits of their own.
    accounts: Mutex<BTreeMap<Owner, Weak<dyn Account>>>,
    /// Where they are when they are not in memory, if anywhere.
    images: Option<Library>,
    /// Where the pool was started: whoever asks may have another, and stop it.
    runtime: Handle,
}

impl Seeds {
    /// None yet. They may come to `budget`, but for those that stay for ever. Must be called
    /// inside a tokio runtime, which makes them, or has them read from `images`.
    pub fn new(
        stock: &Arc<Stock>,
        slots: Arc<SeedSlots>,
        budget: Budget,
        images: Option<Arc<Images>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            graph: Mutex::default(),
            stock: Arc::downgrade(stock),
            slots,
            budget,
            under_way: Mutex::default(),
            forgotten: Notify::new(),
            accounts: Mutex::default(),
            images: images.map(|images| {
                let seeds = this.clone();
                Library::open(images, move |owner| {
                    if let Some(seeds) = seeds.upgrade() {
                        seeds.was_let_go(owner);
                    }
                })
            }),
            runtime: Handle::current(),
        })
    }

    /// An owner's seeds count for this account from now on.
    pub fn open(&self, owner: Owner, account: Weak<dyn Account>) {
        lock(&self.accounts).insert(owner, account);
    }

    /// Whoever had this account has no seeds any more.
    pub fn close(&self, owner: Owner) {
        let mut accounts = lock(&self.accounts);
        // Another may have been opened meanwhile.
        if accounts
            .get(&owner)
            .is_some_and(|account| account.strong_count() == 0)
        {
            accounts.remove(&owner);
        }
    }

    /// Where the pool was started.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The slots for making seeds.
    pub fn slots(&self) -> &Arc<SeedSlots> {
        &self.slots
    }

    /// A handle of what `recipe` makes of `parent`; it is to be forgotten. What no function
    /// can do without stays for ever.
    ///
    /// # Errors
    /// When there can be no such seed.
    pub fn define(
        &self,
        parent: Option<Key>,
        owner: Owner,
        recipe: Recipe,
    ) -> Result<Defined<Frozen, Recipe>, PlatformError> {
        let (step, is_pinned) = (recipe.digest(), recipe.is_pinned());
        let now = Instant::now();
        let defined = self
            .lock()
            .define(parent, owner, step, recipe, is_pinned, now);
        defined.map_err(|error| PlatformError::Protocol(error.to_string()))
    }

    /// A handle less.
    pub fn forget(&self, key: Key) {
        let gone = self.lock().forget(key);
        self.let_go(gone);
        self.forgotten.notify_waiters();
    }

    /// A seed, once it is there: made by jobs that begin now, unless they are under way.
    pub fn ask(self: &Arc<Self>, key: Key, whom: For) -> Made {
        let (teller, told) = oneshot::channel();
        self.begin(key, whom, Some(teller));
        Made {
            told,
            seeds: Arc::downgrade(self),
            key,
        }
    }

    /// Makes a seed for a client, unless it is there, and waits for it. If its image or an ancestor
    /// turns out to be damaged, the seed is made again.
    ///
    /// # Errors
    /// Returns the reason why the seed was not made.
    pub async fn obtain(self: &Arc<Self>, key: Key) -> Result<Held, SeedError> {
        self.obtain_for(key, || ready(For::Clients)).await
    }

    /// As [`Self::obtain`], for the reason that `reason` returns, which is called for each attempt.
    ///
    /// A permit in it is held by the making alone. If another making of the seed is under way, the
    /// permit is dropped before this waits: the other one may need it.
    ///
    /// # Errors
    /// As [`Self::obtain`].
    pub async fn obtain_for<F>(
        self: &Arc<Self>,
        key: Key,
        reason: impl Fn() -> F,
    ) -> Result<Held, SeedError>
    where
        F: Future<Output = For>,
    {
        let mut left = MADE_ANEW_MAX;
        loop {
            let reason = reason().await;
            match self.ask(key, reason).await {
                Ok(Err(SeedError::Platform(PlatformError::SeedUnreadable))) if left > 0 => {
                    left -= 1
                }
                Ok(made) => return made,
                Err(_) => return Err(PlatformError::RuntimeEnds.into()),
            }
        }
    }

    /// Has a seed made that nobody waits for, unless it is there or under way.
    pub fn make(self: &Arc<Self>, key: Key, whom: For) {
        self.begin(key, whom, None);
    }

    fn begin(self: &Arc<Self>, key: Key, whom: For, teller: Option<Waiter>) {
        let (asked, failed) = {
            let mut graph = self.lock();
            let failed = discard_failed(&mut graph, key);
            (graph.ask(key, teller), failed)
        };
        self.let_go(failed);
        match asked {
            Asked::InMemory(frozen, teller) => {
                // Who asks listens.
                let held = Held::new(self, frozen);
                let _ = teller.map(|teller| teller.send(Ok(held)));
            }
            Asked::Build(job) => self.start(job, whom),
            // Who was not taken up as a waiter finds its channel closed.
            Asked::UnderWay | Asked::Unknown(_) => {}
        }
    }

    /// The nearest of a seed and its ancestors that is in memory, and the steps that are
    /// missing from there, in their order.
    pub fn nearest(&self, key: Key) -> Option<(Arc<Frozen>, Vec<Arc<Recipe>>)> {
        let (nearest, failed) = {
            let mut graph = self.lock();
            let failed = discard_failed(&mut graph, key);
            (graph.nearest(key), failed)
        };
        self.let_go(failed);
        nearest
    }

    fn start(self: &Arc<Self>, job: Job<Frozen, Recipe>, whom: For) {
        let key = job.ticket.key();
        let progress = Arc::<SeedProgress>::default();
        let under_way = UnderWay::new(job.recipe.name(), progress.clone());
        lock(&self.under_way).insert(key, under_way);
        let open = Open {
            seeds: self.clone(),
            ticket: Some(job.ticket),
            whom: whom.clone(),
        };
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let Job {
                ticket,
                owner,
                recipe,
                parent,
            } = job;
            let seeds = open.seeds.clone();
            let making = async {
                // Nobody else's initialisation is in its way.
                let begun = Instant::now();
                let restored = seeds.restored(key, &recipe, parent.as_ref(), owner).await;
                let (restored, code) = restored?;
                if let Some(frozen) = restored {
                    return Ok((frozen, begun.elapsed()));
                }
                // What it becomes is compared with that.
                if let Some(parent) = &parent
                    && !whole(parent).await
                {
                    return Err(PlatformError::SeedUnreadable.into());
                }
                let permit = match whom {
                    // A shared seed is made for other functions, too.
                    For::Later(permit) if permit.is_of(owner) => permit,
                    For::Later(_) | For::Clients => {
                        let request = SeedRequest {
                            owner,
                            urgency: Urgency::Foreground,
                            memory: recipe.memory(),
                        };
                        Arc::new(seeds.current_slots().permit(request, &progress).await)
                    }
                };
                let stock = seeds.stock.upgrade().ok_or(PlatformError::SpawnerGone)?;
                let started = Instant::now();
                let context = MakingContext {
                    stock: &stock,
                    permit: &permit,
                };
                let made = recipe.make(context, parent.as_ref()).await?;
                drop(permit);
                if let Some(code) = code {
                    recipe.gives_code(&made, code);
                }
                let frozen = Arc::new(made.owned_by(owner));
                seeds.keep_image(&recipe, &frozen);
                seeds.gather_code(key, &recipe, &frozen);
                Ok((frozen, started.elapsed()))
            };
            let made = tokio::select! {
                made = making => Some(made),
                () = seeds.is_for_nobody(ticket) => None,
            };
            match &made {
                // Functions descend from it.
                Some(Ok((frozen, _))) if matches!(*recipe, Recipe::Link) => {
                    if let Some(stock) = seeds.stock.upgrade() {
                        stock.set_base(frozen);
                    }
                }
                // It is there, or was given up.
                Some(Ok(_)) | None => {}
                Some(Err(error)) => {
                    let (seed, error) = (recipe.name(), Line(error));
                    tracing::warn!(seed, %error, "a seed was not made");
                }
            }
            drop(parent);
            open.end(made.unwrap_or_else(|| Err(PlatformError::Abandoned.into())));
            seeds.was_let_go(owner);
        });
    }

    /// A seed of `owner`'s takes more memory than when it was counted.
    fn has_grown(&self, key: Key, owner: Owner) {
        self.lock().recount(key);
        self.was_let_go(owner);
    }

    /// A seed of `owner`'s is had by one less: it may have to leave memory, and whoever asked for
    /// that before does not ask again.
    pub fn was_let_go(&self, owner: Owner) {
        // Whoever ends instances needs it, and this may be a thread that is none of it.
        let _inside = self.runtime.enter();
        let account = lock(&self.accounts).get(&owner).and_then(Weak::upgrade);
        match account {
            Some(account) => account.fit(),
            None => self.fit_after(owner),
        }
    }

    /// Where seeds are when they are not in memory, if anywhere.
    pub fn library(&self) -> Option<&Library> {
        self.images.as_ref()
    }

    /// Bytes of a seed's image, as they were noted last.
    pub fn image_bytes(&self, recipe: &Recipe) -> Option<u64> {
        self.images.as_ref()?.known_bytes(recipe)
    }

    /// Waits until the images are written of all seeds that were made so far.
    pub async fn images_are_written(&self) {
        if let Some(library) = &self.images {
            library.is_up_to_date().await;
        }
    }

    /// Whether less than half of what seeds may take is taken.
    pub fn is_half_empty(&self) -> bool {
        self.bytes() <= self.budget.bytes / 2
    }

    /// Bytes that seeds may take beyond what they take.
    pub fn room(&self) -> u64 {
        self.budget.bytes.saturating_sub(self.bytes())
    }

    /// Whether seeds take more than they may: more are in use.
    pub fn is_over_budget(&self) -> bool {
        self.lock().is_over(self.budget)
    }

    /// Evicts a seed that nobody has: it was there to be looked at only.
    pub fn let_rest(&self, key: Key) {
        let gone = self.lock().evict(&[key]);
        self.evicted(gone);
    }

    /// Finds out whether there is an image of a function version.
    pub fn look_for_image(&self, version: &Version) {
        if let (Some(library), Some(id)) = (&self.images, version.image_id()) {
            version.note_image(library.bytes_of(id));
        }
    }

    /// Has a seed's image written, behind those of the seeds that came before.
    pub fn keep_image(&self, recipe: &Arc<Recipe>, frozen: &Arc<Frozen>) {
        if let Some(library) = &self.images {
            library.keep(recipe, frozen);
        }
    }

    /// Waits until nobody wants what a job leads to.
    async fn is_for_nobody(&self, ticket: Ticket) {
        loop {
            let mut forgotten = std::pin::pin!(self.forgotten.notified());
            // From now on nothing is missed.
            forgotten.as_mut().enable();
            if !self.lock().is_wanted(ticket) {
                return;
            }
            forgotten.await;
        }
    }

    /// Evicts seeds until all together fit their budget, when an owner may have let one go.
    pub fn fit_after(&self, owner: Owner) {
        let gone = self.lock().fit_after(owner, self.budget, Instant::now());
        self.evicted(gone);
    }

    /// Evicts seeds until all together take `budget` bytes at most, as far as nobody has them.
    #[cfg(feature = "trial")]
    pub fn fit_to(&self, budget: u64) {
        let gone = self.lock().fit(budget, Instant::now());
        self.evicted(gone);
    }

    /// What has to go so that an owner's seeds and instances that rest fit `budget` bytes.
    pub fn fit_owner(&self, owner: Owner, budget: u64, resting: &[Resting]) -> OwnerEvictions {
        self.lock()
            .fit_owner(owner, budget, resting, Instant::now())
    }

    /// Evicts those of `keys` that nobody has.
    pub fn evict(&self, keys: &[Key]) {
        let gone = self.lock().evict(keys);
        for (_, frozen) in &gone {
            let bytes = frozen.bytes();
            tracing::debug!(bytes, "a seed was evicted: its function held too much");
        }
        self.let_go(gone.into_iter().map(|(_, frozen)| frozen).collect());
    }

    fn evicted(&self, gone: Vec<(Key, Arc<Frozen>)>) {
        for (_, frozen) in &gone {
            tracing::debug!(bytes = frozen.bytes(), "a seed was evicted");
        }
        self.let_go(gone.into_iter().map(|(_, frozen)| frozen).collect());
    }

    /// What has left the graph leaves memory, with the sandboxes that are preset with it.
    /// Whatever that takes, nobody waits for it at the lock.
    fn let_go(&self, gone: Vec<Arc<Frozen>>) {
        if let Some(stock) = self.stock.upgrade() {
            stock.forget(&gone);
        }
    }

    /// How many wait for a seed.
    #[cfg(feature = "trial")]
    pub fn waiting(&self, key: Key) -> usize {
        let described = self.lock().describe(Instant::now());
        let of = described.iter().find(|node| node.key == key);
        of.map_or(0, |node| node.waiters)
    }

    /// Bytes of all functions' and engines' seeds.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Bytes of an owner's seeds, after these, and what they were made of, were counted again:
    /// what their instances have read of their holes is memory, too.
    pub fn recounted(&self, owner: Owner, keys: impl Iterator<Item = Key>) -> u64 {
        let mut graph = self.lock();
        keys.for_each(|key| graph.recount(key));
        graph.bytes_of(owner)
    }

    fn lock(&self) -> MutexGuard<'_, Graph<Frozen, Recipe, Waiter>> {
        lock(&self.graph)
    }
}

/// Takes a seed and its ancestors away, as far as their memory will never be whole: who reads it
/// may not have said so yet.
fn discard_failed(graph: &mut Graph<Frozen, Recipe, Waiter>, key: Key) -> Vec<Arc<Frozen>> {
    graph.discard_line(key, has_failed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A job whose end the graph has to be told, whatever becomes of the task.
struct Open {
    seeds: Arc<Seeds>,
    ticket: Option<Ticket>,
    whom: For,
}

impl Open {
    fn end(mut self, made: Result<(Arc<Frozen>, std::time::Duration), SeedError>) {
        self.tell(made);
    }

    fn tell(&mut self, made: Result<(Arc<Frozen>, std::time::Duration), SeedError>) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        lock(&self.seeds.under_way).remove(&ticket.key());
        let done = self.seeds.lock().built(ticket, made);
        self.seeds.let_go(done.gone);
        for (teller, made) in done.told {
            let held = made.map(|frozen| Held::new(&self.seeds, frozen));
            // Who has gone away does not listen.
            let _ = teller.send(held);
        }
        // A permit is for one guest, and jobs behind a shared one may be other functions' or of
        // another version: those need permits of their own.
        let mut ahead = match &self.whom {
            For::Later(permit) => Some(permit.clone()),
            For::Clients => None,
        };
        for job in done.jobs {
            let permit = ahead.take_if(|permit| permit.is_of(job.owner));
            self.seeds
                .start(job, permit.map_or(For::Clients, For::Later));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // The runtime ends, or a step panicked.
        if self.ticket.is_some() {
            self.tell(Err(PlatformError::RuntimeEnds.into()));
        }
    }
}
