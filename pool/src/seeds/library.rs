//! Seeds that come from images, and images that are made of seeds, beside the runtime.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use faasw_seedtree::Owner;
use faasw_seedtree::image::ImageError;
use tokio::sync::Semaphore;

use super::recipe::Recipe;
use crate::images::{ImageId, Images, Place, Restored};
use crate::snapshots::Frozen;

/// A seed whose image is to be written, unless it leaves memory before.
type Order = (Arc<Recipe>, Weak<Frozen>);

/// Images, and who writes them: one after the other, in the order in which their seeds were
/// made. So a parent has its content before its child is written.
#[derive(Debug)]
pub struct Library {
    images: Arc<Images>,
    orders: Sender<Order>,
    /// Seeds that are read at once.
    turns: Arc<Semaphore>,
}

/// How many seeds are read at once: more would each take longer.
const TURNS: usize = 8;

impl Library {
    /// These, with a writer of their own, which ends with this.
    pub fn open(images: Arc<Images>) -> Self {
        let (orders, taken) = channel();
        let writer = {
            let images = images.clone();
            let named = thread::Builder::new().name("faasw-images".to_owned());
            named.spawn(move || write_all(&images, &taken))
        };
        if let Err(error) = writer {
            tracing::warn!(%error, "no func-images will be written");
        }
        Self {
            images,
            orders,
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    /// A seed as its image has it, if there is one that is good. Where shells' page faults can be
    /// answered (`has_faults`), some of its memory may come later.
    pub async fn restore(
        &self,
        recipe: &Arc<Recipe>,
        parent: Option<&Arc<Frozen>>,
        owner: Owner,
        has_faults: bool,
    ) -> Option<Restored> {
        let (images, recipe, parent) = (self.images.clone(), recipe.clone(), parent.cloned());
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        let restoring = tokio::task::spawn_blocking(move || {
            // For as long as it reads, whoever has gone away meanwhile.
            let _turn = turn;
            let is_there = |id: &ImageId| images.bytes_of(id).is_some();
            if let Some(version) = recipe.version()
                && !version.image_id().is_some_and(is_there)
            {
                // What it would have to be good for takes a look at all of its code.
                return None;
            }
            let of = recipe.image().ok()??;
            let depth = parent.as_ref().map_or(0, |parent| parent.depth() + 1);
            let layer = format!("faasw-level-{depth}");
            // What others descend from is compared with them, and mapped by shells that are made
            // ahead: all of it has to be there.
            let may_be_filled = recipe.version().is_some() && has_faults;
            images.restore(&of, &layer, parent.as_ref(), owner, may_be_filled)
        });
        restoring.await.ok()?
    }

    /// Bytes of the image of this function version, of whatever use it may be, if there is one.
    pub fn bytes_of(&self, id: &ImageId) -> Option<u64> {
        self.images.bytes_of(id)
    }

    /// An image turned out to be of no use after its seed was told.
    pub fn refuse(&self, place: &Place, error: &ImageError) {
        self.images.refuse(place, error);
    }

    /// Has a seed's image written, in place of the one that there is.
    pub fn keep(&self, recipe: &Arc<Recipe>, frozen: &Arc<Frozen>) {
        if recipe
            .version()
            .is_some_and(|version| !version.take_writing())
        {
            return;
        }
        // Without a writer there are no images, and nobody misses them.
        let _ = self.orders.send((recipe.clone(), Arc::downgrade(frozen)));
    }
}

fn write_all(images: &Images, orders: &Receiver<Order>) {
    // Nobody waits for this, however much there is.
    images.tidy();
    while let Ok((recipe, frozen)) = orders.recv() {
        if let Some(frozen) = frozen.upgrade()
            && frozen.layer().is_whole()
            && let Ok(Some(of)) = recipe.image()
        {
            let bytes = images.keep(&of, &frozen);
            tracing::debug!(seed = recipe.name(), bytes, "a func-image was written");
            if let Some(version) = recipe.version() {
                version.note_image(bytes);
            }
        }
    }
}
