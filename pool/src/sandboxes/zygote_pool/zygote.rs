//! The zygotes that are ready, and their assignment to requests.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::targets::{PoolAction, SpecialisationTargets};
use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sandboxes::sandbox::Sandbox;
use crate::sandboxes::sandbox_maker::SandboxMaker;
use crate::sandboxes::wall_clock::WallClock;
use crate::snapshots::{ParentRef, SeedSnapshot, ZygoteTemplate};

/// A zygote, and the mailbox of the instance that it becomes.
#[derive(Debug)]
pub struct Zygote {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The mailbox, which is empty.
    pub mailbox: Mailbox,
}

impl Zygote {
    /// Makes a generic zygote.
    ///
    /// # Errors
    /// Returns an error if it cannot be made.
    pub async fn make(maker: &SandboxMaker, wall_clock: WallClock) -> Result<Self, PlatformError> {
        let mailbox = Mailbox::new()?;
        let sandbox = Sandbox::make(maker, wall_clock).await?;
        Ok(Self { sandbox, mailbox })
    }

    /// Makes a zygote in the background, specialised if there is a template. The inner error says
    /// why it cannot be specialised.
    ///
    /// # Errors
    /// Returns an error if it cannot be made.
    pub async fn make_in_background(
        maker: &SandboxMaker,
        wall_clock: WallClock,
        template: Option<&ZygoteTemplate>,
    ) -> Result<Result<Self, String>, PlatformError> {
        let mailbox = Mailbox::new()?;
        let sandbox = Sandbox::make_in_background(maker, wall_clock, template, &mailbox).await?;
        Ok(sandbox.map(|sandbox| Self { sandbox, mailbox }))
    }

    /// Specialises a generic zygote. The inner error says why that is not possible.
    ///
    /// # Errors
    /// Returns an error if its sandbox has ended.
    pub async fn specialise(
        mut self,
        template: &ZygoteTemplate,
    ) -> Result<Result<Self, String>, PlatformError> {
        let done = self.sandbox.specialise(template, &self.mailbox).await?;
        Ok(done.map(|()| self))
    }
}

/// All ready zygotes, and the seeds for which they are specialised.
#[derive(Debug, Default)]
pub struct ReadyZygotes {
    /// Oldest first.
    ready: VecDeque<Zygote>,
    targets: SpecialisationTargets<ParentRef>,
}

/// The next action on the ready zygotes.
#[derive(Debug)]
pub enum ZygoteTask {
    /// End this zygote.
    End(Zygote),
    /// Specialise this generic zygote for a seed.
    Specialise(Zygote, Arc<SeedSnapshot>),
    /// Make a zygote, specialised for this seed if there is one.
    Make(Option<Arc<SeedSnapshot>>),
    /// Nothing is to be done. If true, that may change by time alone.
    Idle(bool),
}

impl ReadyZygotes {
    /// Sets the seed from which functions descend.
    pub fn set_base(&mut self, frozen: &Arc<SeedSnapshot>, now: Instant) {
        self.targets.set_base(ParentRef::of(frozen), now.into_std());
    }

    /// Adds a zygote.
    pub fn put(&mut self, ready: Zygote) {
        self.ready.push_back(ready);
    }

    /// Records that a child of `parent` is forked, of which more are expected.
    pub fn record_fork(&mut self, parent: &ParentRef, now: Instant) {
        self.targets
            .record_fork(parent, parent.is_shared(), now.into_std());
    }

    /// Records whether specialising a zygote for a seed has failed. Returns whether that is given
    /// up now.
    pub fn record_specialisation(&mut self, parent: &ParentRef, has_failed: bool) -> bool {
        self.targets.record_specialisation(parent, has_failed)
    }

    /// Takes the zygote that becomes an instance of `seed` soonest: one specialised for its nearest
    /// ancestor, or a generic one.
    pub fn take(&mut self, seed: &SeedSnapshot) -> Option<Zygote> {
        self.pop(|sandbox| match sandbox.specialised_for() {
            Some(parent) => parent.steps_to(seed),
            None => Some(usize::MAX),
        })
    }

    /// Takes a generic zygote.
    pub fn take_generic(&mut self) -> Option<Zygote> {
        self.pop(|sandbox| sandbox.specialised_for().is_none().then_some(0))
    }

    /// Takes the oldest of those with the fewest `steps` that have not ended while they waited.
    fn pop(&mut self, steps: impl Fn(&Sandbox) -> Option<usize>) -> Option<Zygote> {
        loop {
            let indexed = self.ready.iter().enumerate();
            let suiting =
                indexed.filter_map(|(index, ready)| Some((steps(&ready.sandbox)?, index)));
            let (_, index) = suiting.min()?;
            let mut found = self.ready.remove(index)?;
            if found.sandbox.check_alive() {
                return Some(found);
            }
        }
    }

    /// Returns the next action so that `wanted` zygotes are ready.
    pub fn next(&mut self, wanted: usize, now: Instant) -> ZygoteTask {
        self.targets.forget(ParentRef::is_gone);
        loop {
            let images = self
                .ready
                .iter()
                .map(|ready| ready.sandbox.specialised_for());
            let images: Vec<Option<&ParentRef>> = images.collect();
            match self.targets.next(wanted, &images, now.into_std()) {
                PoolAction::End(index) => {
                    if let Some(ended) = self.ready.remove(index) {
                        return ZygoteTask::End(ended);
                    }
                }
                PoolAction::Specialise(index, parent) => {
                    let Some(frozen) = self.get(&parent) else {
                        continue;
                    };
                    if let Some(mut ready) = self.ready.remove(index)
                        && ready.sandbox.check_alive()
                    {
                        return ZygoteTask::Specialise(ready, frozen);
                    }
                }
                PoolAction::Make(None) => return ZygoteTask::Make(None),
                PoolAction::Make(Some(parent)) => {
                    if let Some(frozen) = self.get(&parent) {
                        return ZygoteTask::Make(Some(frozen));
                    }
                }
                PoolAction::Idle => {
                    return ZygoteTask::Idle(self.targets.has_fading_worth(&images));
                }
            }
        }
    }

    /// Returns the seed of a target; if it has left memory, removes the target.
    fn get(&mut self, parent: &ParentRef) -> Option<Arc<SeedSnapshot>> {
        let frozen = parent.get();
        if frozen.is_none() {
            self.targets.forget(|gone| gone == parent);
        }
        frozen
    }

    /// Takes out the zygotes that are specialised for seeds which have left memory.
    pub fn forget(&mut self, gone: &[ParentRef]) -> Vec<Zygote> {
        self.targets.forget(|parent| gone.contains(parent));
        let is_gone = |ready: &Zygote| {
            ready
                .sandbox
                .specialised_for()
                .is_some_and(|of| gone.contains(of))
        };
        let (ended, left) = self.ready.drain(..).partition(is_gone);
        self.ready = left;
        Vec::from(ended)
    }

    /// Takes out all zygotes.
    pub fn clear(&mut self) -> VecDeque<Zygote> {
        std::mem::take(&mut self.ready)
    }

    /// Returns the number of ready zygotes.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns how many of those are specialised.
    pub fn specialised(&self) -> usize {
        let images = self
            .ready
            .iter()
            .map(|ready| ready.sandbox.specialised_for());
        images.flatten().count()
    }

    /// Returns for how many different seeds those are specialised.
    pub fn parents(&self) -> usize {
        let images = self
            .ready
            .iter()
            .map(|ready| ready.sandbox.specialised_for());
        let images: Vec<&ParentRef> = images.flatten().collect();
        let is_first = |(index, image): &(usize, &&ParentRef)| {
            !images.iter().take(*index).any(|other| other == *image)
        };
        images.iter().enumerate().filter(is_first).count()
    }
}
