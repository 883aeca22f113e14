//! Errors of reading and making images.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use super::format::FORMAT;

/// The reason why there is no image, or none that can be used.
#[derive(Debug, Error)]
pub enum ImageError {
    /// An error of the disk or the system.
    #[error("an image cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// The system had no memory for a layer.
    #[error("a layer cannot be made: {0}")]
    Layer(Errno),
    /// The file ends too early.
    #[error("an image is cut off")]
    CutOff,
    /// The file is no image.
    #[error("the file is not an image")]
    Foreign,
    /// The image was made by an incompatible version of faasw.
    #[error("an image is of format {0}, and this faasw reads format {ours}", ours = FORMAT)]
    Format(u32),
    /// The image was sealed with another key, or its beginning is damaged.
    #[error("an image was sealed with another key, or is damaged")]
    Key,
    /// A part of the image is not what was sealed.
    #[error("{0} of an image is damaged")]
    Damaged(Part),
    /// The image was sealed with the right key, but its contents are inconsistent.
    #[error("an image is inconsistent: {0}")]
    Senseless(&'static str),
    /// The image was made for another purpose: another build, processor or code.
    #[error("an image was made for another build, processor or code")]
    Purpose,
    /// The image was made over another parent.
    #[error("an image was made over another parent")]
    Parent,
    /// The image would exceed the maximum size.
    #[error("a snapshot is too large for an image")]
    TooLarge,
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Random,
}

impl ImageError {
    /// Returns whether the file is at fault, so that another read has the same result.
    #[must_use]
    pub fn is_of_the_file(&self) -> bool {
        match self {
            Self::CutOff
            | Self::Foreign
            | Self::Format(_)
            | Self::Key
            | Self::Damaged(_)
            | Self::Senseless(_)
            | Self::Purpose
            | Self::Parent => true,
            Self::Io(_) | Self::Layer(_) | Self::TooLarge | Self::Random => false,
        }
    }
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The description of the contents.
    Header,
    /// Pages, by the number of their chunk.
    Chunk(u64),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => f.write_str("the header"),
            Self::Chunk(number) => write!(f, "chunk {number}"),
        }
    }
}
