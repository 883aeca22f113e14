//! Seeds that come from images, and images that are made of seeds, beside the runtime.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use faasw_common::ImageInfo;
use faasw_seedtree::image::ImageError;
use faasw_seedtree::{Content, Owner};
use tokio::sync::{Semaphore, oneshot};

use super::recipe::Recipe;
use crate::images::{ImageId, Images, Manner, Place, Restored, Uses};
use crate::snapshots::Frozen;

/// What whoever writes images is to do.
#[derive(Debug)]
enum Order {
    /// Write a seed's, unless it leaves memory before.
    Write(Arc<Recipe>, Weak<Frozen>),
    /// Say that all orders before this are done.
    Tell(oneshot::Sender<()>),
}

/// Images, and who writes them: one after the other, in the order in which their seeds were
/// made. So a parent has its content before its child is written.
#[derive(Debug)]
pub struct Library {
    images: Arc<Images>,
    orders: Sender<Order>,
    /// Seeds that are read at once. One that waits for its engine keeps its turn, which that needs
    /// none of.
    turns: Arc<Semaphore>,
    /// Images that are looked at by who wants to know, at once.
    looks: Arc<Semaphore>,
}

/// How many seeds are read at once: more would each take longer.
const TURNS: usize = 8;

impl Library {
    /// These, with a writer of their own, which ends with this, unless somebody else writes them.
    /// It has a seed for as long as it writes its image; then whose it is hears that it
    /// `is_let_go`.
    pub fn open(images: Arc<Images>, is_let_go: impl Fn(Owner) + Send + 'static) -> Self {
        let (orders, taken) = channel();
        if !images.is_given() {
            let images = images.clone();
            let named = thread::Builder::new().name("faasw-images".to_owned());
            let writer = named.spawn(move || write_all(&images, &taken, is_let_go));
            if let Err(error) = writer {
                tracing::warn!(%error, "no func-images will be written");
            }
        }
        Self {
            images,
            orders,
            turns: Arc::new(Semaphore::new(TURNS)),
            looks: Arc::new(Semaphore::new(1)),
        }
    }

    /// A seed as its image has it, if there is one that is good. Where sandboxes' page faults can
    /// be answered (`has_faults`, which is asked where it matters and may block), some of its
    /// memory may come later. What requests use of its code and of its parent is told before any
    /// memory is read; whoever is told may block, and refuse it.
    pub async fn restore(
        &self,
        recipe: &Arc<Recipe>,
        parent: Option<&Arc<Frozen>>,
        owner: Owner,
        has_faults: impl FnOnce() -> bool + Send + 'static,
        uses: impl FnOnce(&Uses<'_>) -> bool + Send + 'static,
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
                // What it would have to be good for need not be found out.
                return None;
            }
            let of = recipe.image().ok()??;
            let depth = parent.as_ref().map_or(0, |parent| parent.depth() + 1);
            let layer = format!("faasw-level-{depth}");
            // What all share is mapped by zygotes: all of it has to be there.
            let may_be_filled = || !recipe.is_pinned() && has_faults();
            let manner = Manner {
                layer: &layer,
                owner,
            };
            images.restore(&of, parent.as_ref(), manner, may_be_filled, uses)
        });
        restoring.await.ok()?
    }

    /// Bytes of the image of this function version, of whatever use it may be, if there is one.
    pub fn bytes_of(&self, id: &ImageId) -> Option<u64> {
        self.images.bytes_of(id)
    }

    /// Bytes of a seed's image, as they were noted last. No file is looked at.
    pub fn known_bytes(&self, recipe: &Recipe) -> Option<u64> {
        let name = recipe.image_file(&self.images)?;
        self.images.known_bytes(&name)
    }

    /// What the image of a seed has, if there is one ([`Images::describe`]).
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn describe(
        &self,
        recipe: &Arc<Recipe>,
        parent: Option<Content>,
        frozen: Option<Arc<Frozen>>,
    ) -> Result<Option<ImageInfo>, ImageError> {
        // Somebody looks; nobody's request is to wait for that.
        let turn = self.looks.clone().acquire_owned().await;
        let (images, recipe) = (self.images.clone(), recipe.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            match recipe.image().map_err(ImageError::Layer)? {
                Some(of) => images.describe(&of, parent, frozen.as_deref()),
                None => Ok(None),
            }
        });
        let interrupted = |_| io::Error::from(io::ErrorKind::Interrupted);
        looking.await.map_err(interrupted)?
    }

    /// Whether there is an image of a seed that is good over this parent ([`Images::check`]).
    ///
    /// # Errors
    /// Why there is not.
    pub async fn check(
        &self,
        recipe: &Arc<Recipe>,
        parent: &Arc<Frozen>,
    ) -> Result<(), ImageError> {
        let (images, recipe, parent) = (self.images.clone(), recipe.clone(), parent.clone());
        let checking = tokio::task::spawn_blocking(move || {
            let of = recipe.image().map_err(ImageError::Layer)?;
            let of = of.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            images.check(&of, &parent)
        });
        let interrupted = |_| io::Error::from(io::ErrorKind::Interrupted);
        checking.await.map_err(interrupted)?
    }

    /// An image turned out to be of no use after its seed was told.
    pub fn refuse(&self, place: &Place, error: &ImageError) {
        self.images.refuse(place, error);
    }

    /// Has a seed's image written, in place of the one that there is.
    pub fn keep(&self, recipe: &Arc<Recipe>, frozen: &Arc<Frozen>) {
        if self.images.is_given() {
            return;
        }
        if recipe
            .version()
            .is_some_and(|version| !version.take_writing())
        {
            return;
        }
        // Without a writer there are no images, and nobody misses them.
        let order = Order::Write(recipe.clone(), Arc::downgrade(frozen));
        let _ = self.orders.send(order);
    }

    /// Waits until all that was ordered so far is written.
    pub async fn is_up_to_date(&self) {
        let (teller, told) = oneshot::channel();
        let _ = self.orders.send(Order::Tell(teller));
        // Where nobody writes, nobody says so.
        let _ = told.await;
    }
}

fn write_all(images: &Images, orders: &Receiver<Order>, is_let_go: impl Fn(Owner)) {
    // Nobody waits for this, however much there is.
    images.tidy();
    while let Ok(order) = orders.recv() {
        let (recipe, frozen) = match order {
            Order::Write(recipe, frozen) => (recipe, frozen),
            Order::Tell(teller) => {
                // Who has gone away does not listen.
                let _ = teller.send(());
                continue;
            }
        };
        let Some(frozen) = frozen.upgrade() else {
            continue;
        };
        if frozen.layer().is_whole()
            && let Ok(Some(of)) = recipe.image()
        {
            let bytes = images.keep(&of, &frozen);
            tracing::debug!(seed = recipe.name(), bytes, "a func-image was written");
            if let Some(version) = recipe.version() {
                version.note_image(bytes);
            }
        }
        let owner = frozen.owner();
        drop(frozen);
        is_let_go(owner);
    }
}
