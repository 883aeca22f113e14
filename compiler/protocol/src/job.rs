//! The task of a helper, which stands at the front of its input.
//!
//! ```text
//! input:  task (u8), whether a cache is kept (u8), length (u32), name of an export,
//!         length (u64), upload, state or cache
//! ```
//!
//! The node writes the front, so the helper may rely on it. The rest of the input is untrusted.

use faasw_abi::state::INITIALISER;

/// The work on an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Compile it.
    Compile,
    /// If Wizer can process it and it is a module that exports [`INITIALISER`], compile it so that
    /// Wizer can initialise it by that export; otherwise compile it unchanged.
    CompileToInitialise,
    /// Compile it so that Wizer can initialise it by this export; if Wizer cannot, compile it
    /// unchanged.
    CompileToInitialiseBy(String),
    /// Pack it to a bundle ([`faasw_abi::files`]): it consists of a function's files.
    Pack,
    /// Rewrite it so that it starts from the state ([`faasw_abi::state`]) that this export has
    /// produced. The state follows the upload.
    Rewrite(String),
}

/// The helper's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// The task.
    pub task: Task,
    /// Whether the results of the compilation are kept for the next one of the same function.
    pub keeps_cache: bool,
    /// The bytes as uploaded.
    pub upload: &'a [u8],
    /// For [`Task::Rewrite`], the state; for a compilation, the cache that an earlier one of the
    /// same function has written. Empty if there is none.
    pub beside: &'a [u8],
}

impl Task {
    const COMPILE: u8 = 0;
    const COMPILE_TO_INITIALISE: u8 = 1;
    const COMPILE_TO_INITIALISE_BY: u8 = 2;
    const REWRITE: u8 = 3;
    const PACK: u8 = 4;

    /// Returns the bytes that precede an upload of this size in the input.
    #[must_use]
    pub fn front(&self, keeps_cache: bool, upload_bytes: u64) -> Vec<u8> {
        let (kind, export) = match self {
            Self::Compile => (Self::COMPILE, ""),
            Self::Pack => (Self::PACK, ""),
            Self::CompileToInitialise => (Self::COMPILE_TO_INITIALISE, ""),
            Self::CompileToInitialiseBy(export) => {
                (Self::COMPILE_TO_INITIALISE_BY, export.as_str())
            }
            Self::Rewrite(export) => (Self::REWRITE, export.as_str()),
        };
        let length = u32::try_from(export.len()).unwrap_or(u32::MAX);
        [
            &[kind, keeps_cache.into()][..],
            &length.to_le_bytes(),
            export.as_bytes(),
            &upload_bytes.to_le_bytes(),
        ]
        .concat()
    }

    /// Returns the export that Wizer is to call, if any.
    #[must_use]
    pub fn export(&self) -> Option<&str> {
        match self {
            Self::Compile | Self::Pack => None,
            Self::CompileToInitialise => Some(INITIALISER),
            Self::CompileToInitialiseBy(export) | Self::Rewrite(export) => Some(export),
        }
    }
}

impl<'a> Input<'a> {
    /// Decodes a complete input. Returns `None` if it is malformed.
    #[must_use]
    pub fn read(input: &'a [u8]) -> Option<Self> {
        let ([kind, keeps_cache], rest) = input.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (export, rest) = rest.split_at_checked(length)?;
        let export = String::from_utf8(export.to_vec()).ok()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (upload, beside) = rest.split_at_checked(length)?;
        let task = match *kind {
            Task::COMPILE => Task::Compile,
            Task::COMPILE_TO_INITIALISE => Task::CompileToInitialise,
            Task::COMPILE_TO_INITIALISE_BY => Task::CompileToInitialiseBy(export),
            Task::REWRITE => Task::Rewrite(export),
            Task::PACK => Task::Pack,
            _ => return None,
        };
        Some(Self {
            task,
            keeps_cache: *keeps_cache != 0,
            upload,
            beside,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read_as_it_was_put() {
        for (task, keeps_cache) in [
            (Task::Compile, true),
            (Task::CompileToInitialise, false),
            (Task::CompileToInitialiseBy("a:b/c#é".to_owned()), true),
            (Task::Rewrite(String::new()), false),
            (Task::Pack, false),
        ] {
            let input = [&task.front(keeps_cache, 2)[..], b"upstate"].concat();
            let read = Input {
                task,
                keeps_cache,
                upload: b"up",
                beside: b"state",
            };
            assert_eq!(Input::read(&input), Some(read));
            for end in 0..input.len() - 5 {
                assert_eq!(Input::read(&input[..end]), None);
            }
        }
        let unknown = [&[5], &Task::Compile.front(false, 0)[1..]].concat();
        assert_eq!(Input::read(&unknown), None);
    }
}
