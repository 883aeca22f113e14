//! Receives an export piece by piece. No piece is used before its tag was checked. One piece and
//! the module, which is to be deployed, are in memory; the image is written to disk as it arrives.
//! No thread waits for the sender. An export that does not arrive completely leaves nothing behind.

use std::{fmt::Display, io, pin::Pin, sync::Arc, time::Duration};

use faasw_abi::files::bundle::BUNDLE_MAX;
use faasw_client::{Digest, FunctionName};
use faasw_pool::{Contents, IMAGE_MAX, ImageImport, Images, Opening, ParcelError};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use tokio_util::io::StreamReader;

use super::{
    Deployer,
    input::{DeploymentInput, EarlierImage, EarlierVersion, ExportedImage, InputFiles},
    restore::{manifest_mismatch, not_written},
};
use crate::{
    error::{DeployError, ImportError},
    node::{content::PackedFiles, inspect::ExportManifest},
    registry::{FilesRecord, RegistryError},
};

/// The number of the part of an export that is the module. The next part is the image.
const MODULE: usize = 0;

/// An export whose note was opened.
struct ExportReceiver {
    contents: Contents,
    /// The module, followed by the bundle until the two are split.
    module: Vec<u8>,
    bundle: Vec<u8>,
    image: Result<ImageImport, String>,
}

impl Deployer {
    /// Receives an export. All of it was sealed with the node's image key.
    pub(super) async fn receive<B>(
        &self,
        images: &Arc<Images>,
        export: Pin<&mut B>,
        name: Option<FunctionName>,
    ) -> Result<DeploymentInput, ImportError>
    where
        B: http_body::Body,
        B::Error: Display,
    {
        // The semaphore is never closed.
        let permit = self.imports.0.clone().acquire_owned().await.ok();
        let announced = export.size_hint().exact();
        let mut upload = Upload {
            body: reader(export),
            time: self.limits.idle_client,
        };
        let begin = upload.read(Opening::BEGIN).await?;
        let opening = images.open_export(&begin)?;
        let note = upload.read(opening.note_bytes()).await?;
        if note.len() < opening.note_bytes() {
            return Err(ParcelError::CutOff.into());
        }
        let (note, contents) = opening.open_note(note)?;
        if let Some(bytes) = announced {
            contents.check_length(bytes)?;
        }
        let [module_bytes, image_bytes] = contents.parts();
        let manifest: ExportManifest = serde_json::from_slice(&note)?;
        let files = manifest.record.files.clone();
        let bundle_bytes = files.as_ref().map_or(0, |files| files.bundle_bytes);
        if bundle_bytes > BUNDLE_MAX {
            return Err(ParcelError::TooLarge.into());
        }
        // The files follow the module.
        let module_bytes = module_bytes.checked_sub(bundle_bytes);
        let module_bytes = module_bytes.ok_or(ImportError::Module)?;
        let size = usize::try_from(module_bytes).unwrap_or(usize::MAX);
        let limit = self.limits.module;
        if size > limit {
            return Err(DeployError::TooLarge { size, limit }.into());
        }
        if image_bytes > IMAGE_MAX {
            return Err(ParcelError::TooLarge.into());
        }
        let name = name.unwrap_or_else(|| manifest.name.clone());
        let image = manifest_mismatch(&manifest, &name, &images.origin());
        let receiving = ExportReceiver {
            contents,
            module: Vec::new(),
            bundle: Vec::new(),
            image: Err(image.clone().unwrap_or_default()),
        };
        let mut receiving = upload.part(MODULE, receiving).await?;
        let (digest, images) = (manifest.record.digest, images.clone());
        receiving = blocking(move || {
            receiving.bundle = receiving.module.split_off(size.min(receiving.module.len()));
            let is_bundle = |files: FilesRecord| Digest::of(&receiving.bundle) == files.digest;
            if Digest::of(&receiving.module) != digest || !files.is_none_or(is_bundle) {
                return Err(ImportError::Module);
            }
            if image.is_none() {
                receiving.image = images.receive(image_bytes).map_err(not_written);
            }
            Ok(receiving)
        })
        .await?;
        receiving = upload.part(MODULE + 1, receiving).await?;
        if !upload.read(1).await?.is_empty() {
            return Err(ParcelError::TooLong.into());
        }
        let files = match manifest.record.files {
            Some(_) => Some(PackedFiles::of(receiving.bundle.into()).await?),
            None => None,
        };
        Ok(DeploymentInput {
            name,
            bytes: receiving.module.len(),
            module: receiving.module.into(),
            options: manifest.record.options.clone(),
            files: files.map(InputFiles::Packed),
            earlier: Some(EarlierVersion {
                record: manifest.record,
                image: EarlierImage::Exported(ExportedImage {
                    image: receiving.image,
                    _permit: permit,
                }),
            }),
        })
    }
}

impl ExportReceiver {
    /// Opens the next piece and stores it. If the image cannot be written, it is dropped, but its
    /// remaining pieces are still checked.
    fn take(&mut self, part: usize, piece: Vec<u8>) -> Result<(), ParcelError> {
        let piece = self.contents.open(piece)?;
        if part == MODULE {
            self.module.extend(piece);
        } else if let Ok(image) = &mut self.image
            && let Err(error) = image.write(&piece)
        {
            self.image = Err(not_written(error));
        }
        Ok(())
    }
}

/// An upload that is being received.
struct Upload<R> {
    body: R,
    /// The time limit for one read.
    time: Duration,
}

/// Returns a body as a reader.
fn reader<B>(body: Pin<&mut B>) -> impl AsyncRead + Unpin
where
    B: http_body::Body,
    B::Error: Display,
{
    let body = body.map_err(|error| io::Error::other(error.to_string()));
    StreamReader::new(body.into_data_stream())
}

impl<R: AsyncRead + Unpin> Upload<R> {
    /// Receives all pieces of a part.
    async fn part(
        &mut self,
        part: usize,
        mut receiving: ExportReceiver,
    ) -> Result<ExportReceiver, ImportError> {
        while let Some((of, bytes)) = receiving.contents.next_piece()
            && of == part
        {
            let piece = self.read(bytes).await?;
            receiving = blocking(move || {
                receiving.take(part, piece)?;
                Ok(receiving)
            })
            .await?;
        }
        Ok(receiving)
    }

    /// Returns the next `count` bytes, or fewer if the body ends.
    async fn read(&mut self, count: usize) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::with_capacity(count);
        let mut next = (&mut self.body).take(count as u64);
        let reading = async {
            while bytes.len() < count && next.read_buf(&mut bytes).await? > 0 {}
            io::Result::Ok(())
        };
        match timeout(self.time, reading).await {
            Ok(Ok(())) => Ok(bytes),
            Ok(Err(error)) => Err(ImportError::BrokenOff(error.to_string())),
            Err(_) => Err(ImportError::TimedOut(self.time)),
        }
    }
}

/// Runs work that takes processor time or waits for a disk on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImportError> + Send + 'static,
) -> Result<T, ImportError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(RegistryError::Interrupted.into()))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        pin::pin,
        task::{Context, Poll},
    };

    use bytes::Bytes;
    use http_body::Frame;
    use tokio::time::{Instant, Interval, interval_at};

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    /// A body that delivers these parts, one after each pause, and then fails.
    struct Parts {
        parts: VecDeque<Bytes>,
        turn: Interval,
    }

    impl Parts {
        fn new(parts: &[&'static [u8]], pause: Duration) -> Self {
            let pause = pause.max(Duration::from_nanos(1));
            Self {
                parts: parts.iter().copied().map(Bytes::from_static).collect(),
                turn: interval_at(Instant::now() + pause, pause),
            }
        }
    }

    impl http_body::Body for Parts {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            std::task::ready!(self.turn.poll_tick(context));
            let part = self.parts.pop_front();
            Poll::Ready(Some(part.map(Frame::data).ok_or("gone away")))
        }
    }

    fn upload<B>(body: Pin<&mut B>) -> Upload<impl AsyncRead + Unpin>
    where
        B: http_body::Body,
        B::Error: Display,
    {
        Upload {
            body: reader(body),
            time: TIME,
        }
    }

    #[tokio::test]
    async fn export_pieces_are_reassembled_across_frame_boundaries() {
        let mut body = pin!(Parts::new(&[b"ab", b"", b"cdefg", b"h"], Duration::ZERO));
        let mut upload = upload(body.as_mut());
        assert_eq!(upload.read(3).await.unwrap(), b"abc");
        assert_eq!(upload.read(0).await.unwrap(), b"");
        assert_eq!(upload.read(5).await.unwrap(), b"defgh");
        let error = upload.read(1).await.unwrap_err();
        assert!(matches!(&error, ImportError::BrokenOff(why) if why == "gone away"));
        let mut body = pin!(http_body_util::Full::new(Bytes::from_static(b"abc")));
        let mut upload = super::tests::upload(body.as_mut());
        assert_eq!(upload.read(2).await.unwrap(), b"ab");
        assert_eq!(upload.read(2).await.unwrap(), b"c");
        assert_eq!(upload.read(1).await.unwrap(), b"");
    }

    /// A sender is too slow if it is silent, and also if it sends a byte now and then.
    #[tokio::test(start_paused = true)]
    async fn slow_export_senders_time_out() {
        let mut silent = pin!(Parts::new(&[], 2 * TIME));
        let error = upload(silent.as_mut()).read(1).await.unwrap_err();
        assert!(matches!(error, ImportError::TimedOut(TIME)), "{error}");
        let mut slow = pin!(Parts::new(&[b"a", b"b", b"c", b"d"], TIME * 2 / 5));
        let mut upload = upload(slow.as_mut());
        assert_eq!(upload.read(2).await.unwrap(), b"ab");
        let error = upload.read(3).await.unwrap_err();
        assert!(matches!(error, ImportError::TimedOut(TIME)), "{error}");
    }
}
