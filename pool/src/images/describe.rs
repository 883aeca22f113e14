//! Descriptions of images for the admin API.

use std::io;

use faasw_common::{ImageInfo, ImagePages, ImageWorkingSet, SetReuse};
use faasw_seedtree::Content;
use faasw_seedtree::image::{Anatomy, Image, ImageError, Use};

use super::{ImageIdentity, Images};
use crate::snapshots::SeedSnapshot;

impl Images {
    /// Describes the image of a seed, if there is one, and whether it is valid; reads all of it.
    /// `parent` is the content of its parent's memory on this node, if known. The seed itself, if
    /// it is in memory, shows how its working set is used.
    ///
    /// # Errors
    /// Returns an error if the image's header cannot be read or is not authentic.
    pub(crate) fn describe(
        &self,
        of: &ImageIdentity,
        parent: Option<Content>,
        frozen: Option<&SeedSnapshot>,
    ) -> Result<Option<ImageInfo>, ImageError> {
        let file = match self.disk.open(&self.path(&of.kind)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let image = Image::open(file, &self.key)?;
        let unfit = match (image.parent(), parent) {
            _ if image.purpose() != self.purpose(of) => Some(ImageError::Purpose),
            (Some(made_over), Some(parent)) if made_over != parent => Some(ImageError::Parent),
            _ => None,
        };
        let info = ImageInfo {
            damage: image.verify().err().map(|error| error.to_string()),
            unfit: unfit.map(|error| error.to_string()),
            reuse: frozen.and_then(reuse),
            ..info(&image.anatomy())
        };
        Ok(Some(info))
    }
}

/// Converts an anatomy to the types of the admin API.
fn info(anatomy: &Anatomy) -> ImageInfo {
    ImageInfo {
        format: anatomy.format,
        content: anatomy.content.to_string(),
        parent: anatomy.parent.map(|parent| parent.to_string()),
        file_bytes: anatomy.file_bytes,
        header_bytes: anatomy.header_bytes,
        chunks: anatomy.chunks,
        chunk_bytes: anatomy.chunk_bytes,
        dump_bytes: anatomy.ram_bytes,
        pages: ImagePages {
            own: anatomy.own,
            stored: anatomy.stored,
            zero: anatomy.zero,
            inherited: anatomy.inherited,
        },
        working_set: anatomy.used.as_ref().map(working_set),
        ..ImageInfo::default()
    }
}

fn working_set(used: &Use) -> ImageWorkingSet {
    ImageWorkingSet {
        written: used.written,
        changed: used.changed,
        read: used.read,
        used: used.all,
        runs: used.runs,
        longest_run: used.longest_run,
        stored: used.stored,
        zero: used.zero,
        ancestors: used.ancestors,
    }
}

/// Returns how requests have used a seed's working set, if any request was examined.
fn reuse(frozen: &SeedSnapshot) -> Option<SetReuse> {
    let reuse = frozen.working_set().reuse();
    (reuse.resets > 0).then_some(SetReuse {
        requests: reuse.resets,
        outside: reuse.outside,
        compared: reuse.counted,
        inside: reuse.inside,
    })
}
