//! Reading seeds from images and writing images of seeds, outside the runtime's own threads.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use faasw_common::ImageInfo;
use faasw_seedtree::image::ImageError;
use faasw_seedtree::{Content, Owner};
use tokio::sync::{Semaphore, oneshot};

use super::seed_step::SeedStep;
use crate::images::{ImageFile, ImageId, ImageUses, ImageWrite, Images, LayerLabel, Restored};
use crate::snapshots::SeedSnapshot;

/// An order for the image writer.
#[derive(Debug)]
enum WriterOrder {
    /// Write a seed's image, unless the seed leaves memory before.
    Write(Arc<SeedStep>, Weak<SeedSnapshot>),
    /// Report that all earlier orders are done.
    Flush(oneshot::Sender<()>),
}

/// The images and their writer, which writes them one after the other, in the order in which their
/// seeds were made. So a parent has its content before its child is written.
#[derive(Debug)]
pub struct ImageStore {
    images: Arc<Images>,
    orders: Sender<WriterOrder>,
    /// Limits how many seeds are read at once. A reading that waits for its engine keeps its
    /// permit; reading the engine's missing pages needs none.
    read_permits: Arc<Semaphore>,
    /// Limits how many images are described at once.
    describe_permits: Arc<Semaphore>,
}

/// The maximum number of seeds that are read at once: with more, each would take longer.
const READS_MAX: usize = 8;

impl ImageStore {
    /// Opens the images and starts a writer for them, unless another program writes them. The
    /// writer ends with the store. It holds a seed while it writes its image, and then calls
    /// `holder_dropped` with the seed's owner.
    pub fn open(images: Arc<Images>, holder_dropped: impl Fn(Owner) + Send + 'static) -> Self {
        let (orders, receiver) = channel();
        if !images.is_read_only() {
            let images = images.clone();
            let named = thread::Builder::new().name("faasw-images".to_owned());
            let writer = named.spawn(move || write_all(&images, &receiver, holder_dropped));
            if let Err(error) = writer {
                tracing::warn!(%error, "no func-images will be written");
            }
        }
        Self {
            images,
            orders,
            read_permits: Arc::new(Semaphore::new(READS_MAX)),
            describe_permits: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns a seed from its image, if there is a valid one. If page faults of sandboxes can be
    /// answered, some of its memory may be read later; `has_faults` determines that if it matters,
    /// and may block. `uses` receives the pages that requests use of the code and of the parent
    /// before any memory is read. It may block, and may reject the image by returning false.
    pub async fn restore(
        &self,
        recipe: &Arc<SeedStep>,
        parent: Option<&Arc<SeedSnapshot>>,
        owner: Owner,
        has_faults: impl FnOnce() -> bool + Send + 'static,
        uses: impl FnOnce(&ImageUses<'_>) -> bool + Send + 'static,
    ) -> Option<Restored> {
        let (images, recipe, parent) = (self.images.clone(), recipe.clone(), parent.cloned());
        let permit = self.read_permits.clone().acquire_owned().await.ok()?;
        let restoring = tokio::task::spawn_blocking(move || {
            // Held as long as it reads, even if the caller has gone away meanwhile.
            let _permit = permit;
            let is_there = |id: &ImageId| images.bytes_of(id).is_some();
            if let Some(version) = recipe.function_step()
                && !version.image_id().is_some_and(is_there)
            {
                // Without an image, its identity need not be computed.
                return None;
            }
            let of = recipe.image().ok()??;
            let depth = parent.as_ref().map_or(0, |parent| parent.depth() + 1);
            let layer = format!("faasw-level-{depth}");
            // Zygotes map the shared seeds, so these have to be loaded completely.
            let may_be_filled = || !recipe.is_pinned() && has_faults();
            let label = LayerLabel {
                layer: &layer,
                owner,
            };
            images.restore(&of, parent.as_ref(), label, may_be_filled, uses)
        });
        restoring.await.ok()?
    }

    /// Returns the size in bytes of this function version's image if there is one, valid or not.
    pub fn bytes_of(&self, id: &ImageId) -> Option<u64> {
        self.images.bytes_of(id)
    }

    /// Returns the size in bytes of a seed's image, as noted last. No file is accessed.
    pub fn known_bytes(&self, recipe: &SeedStep) -> Option<u64> {
        let name = recipe.image_file(&self.images)?;
        self.images.known_bytes(&name)
    }

    /// Describes the image of a seed, if there is one ([`Images::describe`]).
    ///
    /// # Errors
    /// Returns an error if the image cannot be read.
    pub async fn describe(
        &self,
        recipe: &Arc<SeedStep>,
        parent: Option<Content>,
        frozen: Option<Arc<SeedSnapshot>>,
    ) -> Result<Option<ImageInfo>, ImageError> {
        // A description is for an operator; requests must not wait for it.
        let permit = self.describe_permits.clone().acquire_owned().await;
        let (images, recipe) = (self.images.clone(), recipe.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            match recipe.image().map_err(ImageError::Layer)? {
                Some(of) => images.describe(&of, parent, frozen.as_deref()),
                None => Ok(None),
            }
        });
        let interrupted = |_| io::Error::from(io::ErrorKind::Interrupted);
        looking.await.map_err(interrupted)?
    }

    /// Checks that there is a valid image of a seed over this parent ([`Images::check`]).
    ///
    /// # Errors
    /// Returns the reason why there is not.
    pub async fn check(
        &self,
        recipe: &Arc<SeedStep>,
        parent: &Arc<SeedSnapshot>,
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

    /// Stops using an image that turned out to be invalid after its seed had been returned.
    pub fn reject(&self, place: &ImageFile, error: &ImageError) {
        self.images.reject(place, error);
    }

    /// Orders a seed's image to be written, replacing an existing one.
    pub fn queue_write(&self, recipe: &Arc<SeedStep>, frozen: &Arc<SeedSnapshot>) {
        if self.images.is_read_only() {
            return;
        }
        if recipe
            .function_step()
            .is_some_and(|version| !version.take_image_write())
        {
            return;
        }
        // Without a writer no images are written, and seeds are made again.
        let order = WriterOrder::Write(recipe.clone(), Arc::downgrade(frozen));
        let _ = self.orders.send(order);
    }

    /// Waits until all images ordered so far are written.
    pub async fn flush(&self) {
        let (sender, receiver) = oneshot::channel();
        let _ = self.orders.send(WriterOrder::Flush(sender));
        // Without a writer the sender is dropped, and this returns.
        let _ = receiver.await;
    }
}

fn write_all(images: &Images, orders: &Receiver<WriterOrder>, holder_dropped: impl Fn(Owner)) {
    // No request waits for this, however many files there are.
    images.tidy();
    while let Ok(order) = orders.recv() {
        let (recipe, frozen) = match order {
            WriterOrder::Write(recipe, frozen) => (recipe, frozen),
            WriterOrder::Flush(sender) => {
                // The receiver may be gone.
                let _ = sender.send(());
                continue;
            }
        };
        let frozen = frozen.upgrade();
        let outcome = frozen.as_ref().map_or(ImageWrite::NotTried, |frozen| {
            write(images, &recipe, frozen)
        });
        if let ImageWrite::Written(bytes) = outcome {
            tracing::debug!(seed = recipe.name(), bytes, "a func-image was written");
        }
        if let Some(version) = recipe.function_step() {
            match outcome {
                ImageWrite::Written(bytes) => version.note_image(Some(bytes)),
                // Later, the disk may have room.
                ImageWrite::NotTried => version.return_image_write(),
                // The version must not write to a failing disk without bound.
                ImageWrite::Failed => {}
            }
        }
        if let Some(frozen) = frozen {
            let owner = frozen.owner();
            drop(frozen);
            holder_dropped(owner);
        }
    }
}

/// Writes a seed's image, unless the seed is not fully loaded or is to have no image.
fn write(images: &Images, recipe: &SeedStep, frozen: &SeedSnapshot) -> ImageWrite {
    if !frozen.layer().progress().is_fully_loaded() {
        return ImageWrite::NotTried;
    }
    match recipe.image() {
        Ok(Some(of)) => images.write_image(&of, frozen),
        Ok(None) | Err(_) => ImageWrite::NotTried,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use faasw_abi::memory_map::RODATA_END;
    use faasw_abi::wire::FunctionKind;
    use faasw_common::FreezePolicy;
    use faasw_fri::messages::VcpuState;
    use faasw_seedtree::LayerBuilder;
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::seeds::own_log::OwnLog;
    use crate::seeds::spec::FunctionSpec;
    use crate::snapshots::{Code, CodeHandle};

    fn step(image: ImageId) -> Arc<SeedStep> {
        let spec = FunctionSpec {
            name: "f".to_owned(),
            memory_limit: 1 << 20,
            environment: Vec::new(),
            configuration: Vec::new(),
            secrets: Vec::new(),
            stores: Vec::new(),
            freeze: FreezePolicy::Auto,
            poll: None,
            init: None,
            script: None,
            arguments: Vec::new(),
            files: None,
            warm_ups: Vec::new(),
            has_entry: false,
            image: Some(image),
            log: Arc::new(OwnLog),
        };
        let code = Arc::new(CodeHandle::unstored(Arc::new(
            Code::copy_of(b"code").unwrap(),
        )));
        let kind = FunctionKind::HttpComponent;
        let limit = Duration::from_secs(1);
        Arc::new(SeedStep::function(&spec, kind, &code, limit, None, 1).unwrap())
    }

    fn frozen() -> Arc<SeedSnapshot> {
        let layer = LayerBuilder::new("test", 64 << 20).unwrap();
        layer.write(RODATA_END, b"here").unwrap();
        let layer = layer.freeze(1).unwrap();
        let state = Box::new(VcpuState::new_zeroed()).into();
        Arc::new(SeedSnapshot::new(None, layer, state, 5).unwrap())
    }

    #[tokio::test]
    async fn writes_without_room_do_not_use_up_those_of_a_version() {
        let folder = tempfile::tempdir().unwrap();
        let frozen = frozen();
        let id = [1; 32];
        let recipe = step(id);
        for (budget, is_written) in [(0, false), (1 << 30, true)] {
            let images = Images::new(folder.path().into(), &[3; Images::SECRET], budget);
            let store = ImageStore::open(Arc::new(images), |_| ());
            for _ in 0..10 {
                store.queue_write(&recipe, &frozen);
            }
            store.flush().await;
            assert_eq!(store.bytes_of(&id).is_some(), is_written);
            let is_known = recipe
                .function_step()
                .is_some_and(|version| version.has_image());
            assert_eq!(is_known, is_written);
        }
    }

    #[tokio::test]
    async fn failed_writes_use_up_those_of_a_version() {
        let folder = tempfile::tempdir().unwrap();
        let frozen = frozen();
        let id = [1; 32];
        let recipe = step(id);
        // The folder's parent is missing, so that the folder cannot be created.
        let missing = folder.path().join("missing/images");
        for path in [missing, folder.path().into()] {
            let images = Images::new(path, &[3; Images::SECRET], 1 << 30);
            let store = ImageStore::open(Arc::new(images), |_| ());
            for _ in 0..10 {
                store.queue_write(&recipe, &frozen);
            }
            store.flush().await;
            assert_eq!(store.bytes_of(&id), None);
        }
    }
}
