//! Which seed an image belongs to, and the name of its file.

use std::collections::HashSet;

use faasw_seedtree::image::ImageKey;

/// The names that the recipes use for the seeds that all functions share.
pub(crate) const SHARED: [&str; 2] = ["guest", "linkers"];

/// The prefix of the names of files that are being written. No image has a name with this prefix.
pub(super) const UNFINISHED: &str = ".unfinished";

/// The prefix of the names of language engines' images. The engine that an image belongs to is
/// known only once the engine's code is there, so the image stays until it has not been used for
/// long.
pub(super) const ENGINE: &str = "engine-";

/// The number of hexadecimal digits in a name.
const DIGITS: usize = 64;

/// Returns whether a file belongs to the images, by its name. Other files in the folder are left
/// alone.
pub(super) fn is_image_file(name: &str) -> bool {
    let digits = name.strip_prefix(ENGINE).unwrap_or(name);
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.starts_with(UNFINISHED) || (digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// The name of a seed's image, and what the image is valid for beside this build and processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageIdentity {
    pub(super) kind: ImageKind,
    pub(super) purpose: Vec<Vec<u8>>,
}

/// The seed that an image belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImageKind {
    Shared(String),
    /// An engine, by the digest of its code and its commands.
    Engine([u8; 32], Vec<u8>),
    Function(ImageId),
}

impl ImageKind {
    /// Returns the file name of the seed's image, with the key that seals images.
    pub(super) fn file_name(&self, key: &ImageKey) -> String {
        match self {
            Self::Shared(name) => key.name(&[b"shared", name.as_bytes()]),
            Self::Engine(code, commands) => {
                let name = key.name(&[b"engine", code, commands]);
                format!("{ENGINE}{name}")
            }
            Self::Function(id) => key.name(&[b"function", id]),
        }
    }
}

impl ImageIdentity {
    fn new(kind: ImageKind, purpose: &[&[u8]]) -> Self {
        Self {
            kind,
            purpose: purpose.iter().map(|part| part.to_vec()).collect(),
        }
    }

    /// Names the image of a seed that all functions share.
    pub(crate) fn shared(name: &str) -> Self {
        Self::new(ImageKind::Shared(name.to_owned()), &[])
    }

    /// Names the image of a language engine by the digest of its code and the commands that it
    /// runs.
    pub(crate) fn engine(code: &[u8; 32], commands: &[u8]) -> Self {
        Self::new(ImageKind::Engine(*code, commands.to_vec()), &[])
    }

    /// Names the image of a function version, valid only for `purpose`.
    pub(crate) fn function(id: &ImageId, purpose: &[&[u8]]) -> Self {
        Self::new(ImageKind::Function(*id), purpose)
    }
}

/// The identity of a function version's image. No other version of any function has the same.
pub type ImageId = [u8; 32];

/// The names of the images that are wanted.
#[derive(Clone, Debug, Default)]
pub(super) enum WantedImages {
    #[default]
    All,
    These(HashSet<String>),
}

impl WantedImages {
    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.contains(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_programs_are_not_images() {
        let digits = "0123456789abcdef".repeat(4);
        for name in [&digits, &format!("engine-{digits}"), ".unfinished-1-0"] {
            assert!(is_image_file(name), "{name}");
        }
        for name in [
            "README",
            "",
            &digits[1..],
            &digits.to_uppercase(),
            &format!("{digits}0"),
            &format!("engine-{}", &digits[1..]),
            &format!("{digits}.bak"),
        ] {
            assert!(!is_image_file(name), "{name}");
        }
    }
}
