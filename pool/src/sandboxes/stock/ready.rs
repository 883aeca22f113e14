//! Sandboxes that are ready, and who gets which.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::shelves::{Shelves, Step};
use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sandboxes::confinement::Maker;
use crate::sandboxes::sandbox::Sandbox;
use crate::sandboxes::wall_clock::WallClock;
use crate::snapshots::{Frozen, Parent, Template};

/// A sandbox that holds no function, and the mailbox of whatever it becomes.
#[derive(Debug)]
pub struct Ready {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The mailbox; nothing is in it.
    pub mailbox: Mailbox,
}

impl Ready {
    /// A bare one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn make(maker: &Maker, wall_clock: WallClock) -> Result<Self, PlatformError> {
        let mailbox = Mailbox::new()?;
        let sandbox = Sandbox::make(maker, wall_clock).await?;
        Ok(Self { sandbox, mailbox })
    }

    /// One that nobody waits for, preset if there is a template. The inner error says
    /// why it cannot be preset.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn make_ahead(
        maker: &Maker,
        wall_clock: WallClock,
        template: Option<&Template>,
    ) -> Result<Result<Self, String>, PlatformError> {
        let mailbox = Mailbox::new()?;
        let sandbox = Sandbox::make_ahead(maker, wall_clock, template, &mailbox).await?;
        Ok(sandbox.map(|sandbox| Self { sandbox, mailbox }))
    }

    /// Presets one that is bare. The inner error says why it cannot be.
    ///
    /// # Errors
    /// When its sandbox is gone.
    pub async fn preset(
        mut self,
        template: &Template,
    ) -> Result<Result<Self, String>, PlatformError> {
        let done = self.sandbox.preset(template, &self.mailbox).await?;
        Ok(done.map(|()| self))
    }
}

/// All that are ready, and the seeds that there are shelves for.
#[derive(Debug, Default)]
pub struct Kept {
    /// The oldest first.
    ready: VecDeque<Ready>,
    shelves: Shelves<Parent>,
}

/// What is to be done next to them.
#[derive(Debug)]
pub enum Todo {
    /// This one is to be ended.
    End(Ready),
    /// This one, which is bare, is to be preset with a seed.
    Preset(Ready, Arc<Frozen>),
    /// One is to be made, preset with this if there is anything.
    Make(Option<Arc<Frozen>>),
    /// Nothing. If it says so, that may be otherwise by time alone.
    Rest(bool),
}

impl Kept {
    /// Functions descend from this seed.
    pub fn set_base(&mut self, frozen: &Arc<Frozen>, now: Instant) {
        self.shelves.set_base(Parent::of(frozen), now.into_std());
    }

    /// Adds one.
    pub fn put(&mut self, ready: Ready) {
        self.ready.push_back(ready);
    }

    /// A child of `parent` is forked, from which more are expected.
    pub fn note(&mut self, parent: &Parent, now: Instant) {
        self.shelves
            .note(parent, parent.is_shared(), now.into_std());
    }

    /// Presetting a sandbox with a seed has failed, or not; whether that is given up now.
    pub fn note_preset(&mut self, parent: &Parent, has_failed: bool) -> bool {
        self.shelves.note_preset(parent, has_failed)
    }

    /// The one that is the soonest an instance of `seed`: preset with the nearest of its
    /// ancestors, or bare.
    pub fn take(&mut self, seed: &Frozen) -> Option<Ready> {
        self.pop(|sandbox| match sandbox.image() {
            Some(parent) => parent.steps_to(seed),
            None => Some(usize::MAX),
        })
    }

    /// One that is bare.
    pub fn take_bare(&mut self) -> Option<Ready> {
        self.pop(|sandbox| sandbox.image().is_none().then_some(0))
    }

    /// Takes the oldest out of those that have the fewest `steps` to go, and have not ended
    /// while they waited.
    fn pop(&mut self, steps: impl Fn(&Sandbox) -> Option<usize>) -> Option<Ready> {
        loop {
            let places = self.ready.iter().enumerate();
            let suiting = places.filter_map(|(place, ready)| Some((steps(&ready.sandbox)?, place)));
            let (_, place) = suiting.min()?;
            let mut found = self.ready.remove(place)?;
            if found.sandbox.check_alive() {
                return Some(found);
            }
        }
    }

    /// What to do next so that `wanted` are ready.
    pub fn next(&mut self, wanted: usize, now: Instant) -> Todo {
        self.shelves.forget(Parent::is_gone);
        loop {
            let images = self.ready.iter().map(|ready| ready.sandbox.image());
            let images: Vec<Option<&Parent>> = images.collect();
            match self.shelves.next(wanted, &images, now.into_std()) {
                Step::End(place) => {
                    if let Some(ended) = self.ready.remove(place) {
                        return Todo::End(ended);
                    }
                }
                Step::Preset(place, parent) => {
                    let Some(frozen) = self.get(&parent) else {
                        continue;
                    };
                    if let Some(mut ready) = self.ready.remove(place)
                        && ready.sandbox.check_alive()
                    {
                        return Todo::Preset(ready, frozen);
                    }
                }
                Step::Make(None) => return Todo::Make(None),
                Step::Make(Some(parent)) => {
                    if let Some(frozen) = self.get(&parent) {
                        return Todo::Make(Some(frozen));
                    }
                }
                Step::Rest => return Todo::Rest(self.shelves.fade(&images)),
            }
        }
    }

    /// A seed that has a shelf, or had one until now.
    fn get(&mut self, parent: &Parent) -> Option<Arc<Frozen>> {
        let frozen = parent.get();
        if frozen.is_none() {
            self.shelves.forget(|gone| gone == parent);
        }
        frozen
    }

    /// These seeds have left memory: takes out what is preset with them.
    pub fn forget(&mut self, gone: &[Parent]) -> Vec<Ready> {
        self.shelves.forget(|parent| gone.contains(parent));
        let is_gone = |ready: &Ready| ready.sandbox.image().is_some_and(|of| gone.contains(of));
        let (ended, left) = self.ready.drain(..).partition(is_gone);
        self.ready = left;
        Vec::from(ended)
    }

    /// Takes all out.
    pub fn clear(&mut self) -> VecDeque<Ready> {
        std::mem::take(&mut self.ready)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// How many of those are preset.
    pub fn preset(&self) -> usize {
        let images = self.ready.iter().map(|ready| ready.sandbox.image());
        images.flatten().count()
    }

    /// How many seeds those are preset with.
    pub fn parents(&self) -> usize {
        let images = self.ready.iter().map(|ready| ready.sandbox.image());
        let images: Vec<&Parent> = images.flatten().collect();
        let is_first = |(place, image): &(usize, &&Parent)| {
            !images.iter().take(*place).any(|other| other == *image)
        };
        images.iter().enumerate().filter(is_first).count()
    }
}
