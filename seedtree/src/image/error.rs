//! Why a file is not read or made.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use super::header::FORMAT;

/// Why there is no image, or none that can be used.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The disk's, or the system's.
    #[error("an image cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// The system had no memory for a layer.
    #[error("a layer cannot be made: {0}")]
    Layer(Errno),
    /// It ends before its end.
    #[error("an image is cut off")]
    CutOff,
    /// It is none.
    #[error("a file is no image")]
    Foreign,
    /// It was made by another faasw.
    #[error("an image is of format {0}, and this faasw reads format {ours}", ours = FORMAT)]
    Format(u32),
    /// It was sealed with another key, or its beginning is damaged.
    #[error("an image was sealed with another key, or is damaged")]
    Key,
    /// A part of it is not what was sealed.
    #[error("{0} of an image is damaged")]
    Damaged(Part),
    /// It was sealed with the right key and makes no sense.
    #[error("an image makes no sense: {0}")]
    Senseless(&'static str),
    /// It is good for something else: another build, processor or code.
    #[error("an image is good for something else")]
    Purpose,
    /// It was made over another parent.
    #[error("an image was made over another parent")]
    Parent,
    /// It would be larger than one can be.
    #[error("a snapshot is too large for an image")]
    TooLarge,
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Random,
}

impl ImageError {
    /// Whether the file is at fault, and will be however often it is read.
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
    /// What says what is where.
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
