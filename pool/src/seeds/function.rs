//! A function version as the tree has it: a handle of its seed, the instances that are parked
//! of it, and what is counted.
//!
//! By the freeze policy a seed is frozen either after instantiation or before it: what
//! an initialisation drew from the random generator would otherwise be every
//! request's. Deploying instantiates once in any case, so that a function that
//! cannot be instantiated is refused then. A function that is known from an earlier
//! making is taken up without one: its seed is made later (`later`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use faasw_common::{ImageInfo, Lack};
use faasw_seedtree::Key;
use faasw_seedtree::graph::{Resident, Slot};
use faasw_seedtree::image::ImageError;

use super::graph::{Held, Seeds};
use super::holding::Holding;
use super::language_engine::LanguageEngine;
use super::recipe::Recipe;
use super::version::Version;
use crate::error::PlatformError;
use crate::instances::Parking;
use crate::sink::Served;
use crate::snapshots::{Code, Frozen, describe, has_failed};
use crate::stats::SeedInfo;

/// How many ancestors a function has: the guest, and what links its imports; a script also
/// its engine.
const LEVEL: u8 = 2;

/// A function that instances can be made of. Clones share it. Its seed is in
/// memory, or was evicted for others and is made again when it is used.
#[derive(Clone, Debug)]
pub struct FunctionVersion(Arc<Function>);

impl std::ops::Deref for FunctionVersion {
    type Target = Arc<Function>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FunctionVersion {
    /// That of a version that the tree has.
    pub(super) fn new(function: Arc<Function>) -> Self {
        Self(function)
    }

    /// What does not keep it.
    pub(crate) fn downgrade(&self) -> WeakVersion {
        WeakVersion(Arc::downgrade(&self.0))
    }
}

/// A function version, if somebody has it yet.
#[derive(Debug)]
pub struct WeakVersion(Weak<Function>);

impl WeakVersion {
    /// The version, if it is there.
    pub fn upgrade(&self) -> Option<FunctionVersion> {
        self.0.upgrade().map(FunctionVersion)
    }

    /// Whether nobody has it.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Whether it is this one.
    pub fn is(&self, version: &FunctionVersion) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&version.0))
    }
}

/// A function version as the tree has it. Each deployment has a seed of its own, whatever
/// others are made of.
#[derive(Debug)]
pub struct Function {
    version: Arc<Version>,
    recipe: Arc<Recipe>,
    key: Key,
    slot: Slot<Frozen>,
    seeds: Arc<Seeds>,
    /// What a script descends from; it stays as long as the script does.
    engine: Option<Arc<LanguageEngine>>,
    parking: Arc<Parking>,
    holding: Arc<Holding>,
    busy: AtomicUsize,
    served: [AtomicU64; Served::ALL.len()],
    page_faults: AtomicU64,
    /// What its seed takes of all seeds' memory, as far as that is known.
    seed_bytes: AtomicU64,
}

impl Drop for Function {
    fn drop(&mut self) {
        self.seeds.forget(self.key);
    }
}

impl Function {
    /// A version whose seed is made by `recipe`, which is a version's, of `parent`, or of the
    /// engine that it is a script of.
    ///
    /// # Errors
    /// When there can be no such seed.
    pub(super) fn new(
        seeds: &Arc<Seeds>,
        parent: Key,
        engine: Option<Arc<LanguageEngine>>,
        recipe: Recipe,
        parking: Arc<Parking>,
        holding: Arc<Holding>,
    ) -> Result<Self, PlatformError> {
        let parent = engine.as_ref().map_or(parent, |engine| engine.key());
        let defined = seeds.define(Some(parent), holding.owner(), recipe)?;
        let Some(version) = defined.recipe.version().cloned() else {
            seeds.forget(defined.key);
            let what = "a function's seed is made by another step".to_owned();
            return Err(PlatformError::Protocol(what));
        };
        Ok(Self {
            seed_bytes: AtomicU64::new(version.expected_bytes()),
            version,
            recipe: defined.recipe,
            key: defined.key,
            slot: defined.slot,
            seeds: seeds.clone(),
            engine,
            parking,
            holding,
            busy: AtomicUsize::new(0),
            served: Default::default(),
            page_faults: AtomicU64::new(0),
        })
    }

    /// What it is made of.
    pub(super) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Its seed's name.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The graph that its seed is in.
    pub(super) fn seeds(&self) -> &Arc<Seeds> {
        &self.seeds
    }

    /// Its seed, if that is in memory. It is not evicted while this is held.
    pub(crate) fn frozen(&self) -> Option<Arc<Frozen>> {
        let frozen = self.slot.get();
        frozen.filter(|frozen| !has_failed(frozen))
    }

    /// The same for who has no instance of it, and maybe for long.
    pub(crate) fn held(&self) -> Option<Held> {
        let frozen = self.frozen()?;
        Some(Held::new(&self.seeds, frozen))
    }

    /// What `look` says of its seed, if that is in memory. Nobody finds it in use for that.
    fn look<V>(&self, look: impl FnOnce(&Frozen) -> V) -> Option<V> {
        let look = |frozen: &Frozen| (!has_failed(frozen)).then(|| look(frozen));
        self.slot.look(look).flatten()
    }

    /// Whether its seed is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.look(|_| ()).is_some()
    }

    /// Bytes that its guests may come to have for it.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.version.memory_limit()
    }

    /// RAM of its guests, in bytes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.version.ram_bytes()
    }

    pub(crate) fn parking(&self) -> &Arc<Parking> {
        &self.parking
    }

    /// The account of what all its versions hold in memory.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// The function's name.
    pub(crate) fn name(&self) -> &str {
        self.version.name()
    }

    /// Whether it is a script.
    pub(super) fn is_script(&self) -> bool {
        self.version.is_script()
    }

    /// Whether only its own seed can be forked for it.
    pub(crate) fn is_fed(&self) -> bool {
        self.version.is_fed()
    }

    /// Whether it is a script of this engine.
    pub(super) fn is_of(&self, engine: &Arc<LanguageEngine>) -> bool {
        let own = self.engine.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, engine))
    }

    /// How many instances fewer it has than it is to have at all times, where `frozen` is its seed;
    /// or that is in no memory, and nothing can be forked from it.
    pub(crate) fn missing_instances(&self, frozen: Option<&Frozen>) -> usize {
        if let Some(frozen) = frozen {
            // What making it again will take.
            self.note_seed(frozen);
        }
        let generation = frozen.map_or(0, |frozen| frozen.working_set().current().generation);
        self.parking.missing(generation, self.busy())
    }

    /// What keeps one more instance of it from being parked that no request has asked for, if
    /// anything of its own does, or of the seeds.
    pub(crate) fn is_full(&self, frozen: &Frozen) -> Option<Lack> {
        // Those at work come back: what is made now is not to end then, nor to end others.
        let more = 1 + self.busy() as u64;
        if self.holding.room() < more.saturating_mul(frozen.bytes_of_new().max(1)) {
            return Some(Lack::FunctionMemory);
        }
        // Its seed could not be evicted any more.
        self.seeds.is_over_budget().then_some(Lack::SeedMemory)
    }

    /// Its seed takes as much as this one, which is its own, when it is made again.
    pub(crate) fn note_seed(&self, frozen: &Frozen) {
        let bytes = Resident::bytes(frozen);
        self.seed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What keeps its seed from being made for instances that no request has asked for, if anything
    /// does: it has to fit all that seeds may take, and its function's own.
    pub(crate) fn has_no_room_for_seed(&self) -> Option<Lack> {
        let bytes = self.seed_bytes.load(Ordering::Relaxed).max(1);
        if self.holding.room() < bytes {
            return Some(Lack::FunctionMemory);
        }
        (self.seeds.room() < bytes).then_some(Lack::SeedMemory)
    }

    /// Whether the function may hold one more new instance.
    pub(crate) fn can_afford_one(&self, frozen: &Frozen) -> bool {
        self.holding.room() >= frozen.bytes_of_new().max(1)
    }

    /// The best that there is to be forked while its seed is not in memory (best-effort
    /// fork, AFaaS §4.1).
    ///
    /// # Errors
    /// When nothing is, not even what all share; when its code cannot be brought back.
    pub(crate) async fn nearest(&self) -> Result<Origin, PlatformError> {
        let code = self.version.code().get().await?;
        let nearest = self.seeds.nearest(self.key);
        let (from, missing) = nearest.ok_or_else(|| {
            let what = "there is no seed that a function descends from".to_owned();
            PlatformError::Protocol(what)
        })?;
        let code = Some(code);
        Ok(Origin {
            from,
            missing,
            code,
        })
    }

    /// Has its image written anew: more is known of its seed than when it was made. Its code may
    /// be in large pages from now on.
    pub(crate) fn keep_image(&self, frozen: &Arc<Frozen>) {
        self.seeds.keep_image(&self.recipe, frozen);
        self.seeds.gather_code(self.key, &self.recipe, frozen);
    }

    /// Bytes of its image on disk, as they were noted last.
    pub(crate) fn image_bytes(&self) -> Option<u64> {
        self.seeds.image_bytes(&self.recipe)
    }

    /// What its image has, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn describe_image(&self) -> Result<Option<ImageInfo>, ImageError> {
        let Some(library) = self.seeds.library() else {
            return Ok(None);
        };
        let held = self.held();
        let frozen = held.as_deref().cloned();
        let parent = match &frozen {
            Some(frozen) => frozen.parent().cloned(),
            None => {
                let nearest = self.seeds.nearest(self.key);
                let parent = nearest.filter(|(_, missing)| missing.len() == 1);
                parent.map(|(from, _)| from)
            }
        };
        let parent = parent.and_then(|parent| parent.content());
        library.describe(&self.recipe, parent, frozen).await
    }

    /// Whether its image is good over this parent.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) async fn check_image(&self, parent: &Arc<Frozen>) -> Result<(), ImageError> {
        match self.seeds.library() {
            Some(library) => library.check(&self.recipe, parent).await,
            None => Err(std::io::Error::from(std::io::ErrorKind::NotFound).into()),
        }
    }

    /// The engine that it is a script of, if it is one.
    pub(super) fn engine(&self) -> Option<&Arc<LanguageEngine>> {
        self.engine.as_ref()
    }

    /// Its instances at work, being reset or being ended.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// A request is served by such a microVM from now on.
    pub(crate) fn begin(self: &Arc<Self>, served: Served) -> Busy {
        self.slot.note_use(Instant::now());
        if let Some(count) = self.served.get(served as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy {
            function: self.clone(),
            served,
        }
    }

    /// An instance took so many page faults for its request.
    pub(crate) fn count_faults(&self, page_faults: u64) {
        self.page_faults.fetch_add(page_faults, Ordering::Relaxed);
    }

    pub(super) fn describe(&self) -> SeedInfo {
        let count = |served: Served| {
            let count = self.served.get(served as usize);
            count.map_or(0, |count| count.load(Ordering::Relaxed))
        };
        let all: u64 = Served::ALL.map(count).iter().sum();
        SeedInfo {
            name: self.version.name().to_owned(),
            level: LEVEL + u8::from(self.is_script()),
            parked: self.parking.count(),
            parked_bytes: self.parking.bytes(),
            busy: self.busy(),
            requests: all,
            hits: count(Served::Parked),
            page_faults: self.page_faults.load(Ordering::Relaxed),
            image_bytes: self.image_bytes(),
            ..self.look(|frozen| describe("", frozen)).unwrap_or_default()
        }
    }
}

/// What an instance is forked from, and what its guest has to do before it is the function.
#[derive(Debug)]
pub struct Origin {
    /// The snapshot.
    pub from: Arc<Frozen>,
    /// The steps that are missing, in their order.
    pub missing: Vec<Arc<Recipe>>,
    /// The function's code.
    pub code: Option<Arc<Code>>,
}

impl Origin {
    /// The function's own seed.
    pub fn own(frozen: Arc<Frozen>) -> Self {
        Self {
            code: frozen.state().code().cloned(),
            from: frozen,
            missing: Vec::new(),
        }
    }

    /// What sandboxes are to be preset with for this and more of its kind: an ancestor that
    /// stands in for the function's seed does so for others, too.
    pub fn parent(&self) -> &Arc<Frozen> {
        if self.is_own() {
            self.from.parent().unwrap_or(&self.from)
        } else {
            &self.from
        }
    }

    /// Whether it is the function's own seed.
    pub fn is_own(&self) -> bool {
        self.missing.is_empty()
    }
}

/// A request under way. Dropping it says that its instance is free again.
#[derive(Debug)]
pub struct Busy {
    function: Arc<Function>,
    served: Served,
}

impl Busy {
    /// The request is served by such a microVM after all.
    pub(crate) fn goes_over_to(&mut self, served: Served) {
        let counts = &self.function.served;
        if let Some(count) = counts.get(self.served as usize) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = counts.get(served as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.served = served;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.function.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
