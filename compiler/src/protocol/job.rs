//! What the helper is to do, as it stands before the bytes that it is done with.
//!
//! ```text
//! input:  task (u8), whether a cache is kept (u8), length (u32), name of an export,
//!         length (u64), upload, state or cache
//! ```
//!
//! The node writes it, so the helper may rely on it; what follows in the input it may not.

use faasw_abi::state::INITIALISER;

/// What is done with an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// It is compiled.
    Compile,
    /// It is compiled so that Wizer can initialise it by an export, where Wizer can and it is
    /// a module that exports [`INITIALISER`]; as it is where not.
    CompileToInitialise,
    /// It is compiled so that Wizer can initialise it by this export, or as it is.
    CompileToInitialiseBy(String),
    /// It is a function's files, and is packed to a bundle ([`faasw_abi::files`]).
    Pack,
    /// It is rewritten so that it begins with what this export has made of it: the state
    /// ([`faasw_abi::state`]) stands behind it.
    Rewrite(String),
}

/// What the helper reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// What is to be done.
    pub task: Task,
    /// Whether what was compiled is kept for the next compilation of the same function.
    pub keeps_cache: bool,
    /// The bytes as uploaded.
    pub upload: &'a [u8],
    /// The state, of a task that rewrites; of one that compiles the cache that an earlier one
    /// of the same function has kept. Empty where there is none.
    pub beside: &'a [u8],
}

impl Task {
    const COMPILE: u8 = 0;
    const COMPILE_TO_INITIALISE: u8 = 1;
    const COMPILE_TO_INITIALISE_BY: u8 = 2;
    const REWRITE: u8 = 3;
    const PACK: u8 = 4;

    /// What stands in the input before an upload of so many bytes.
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

    /// The export that Wizer is to call, if it is to.
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
    /// What a whole input says; nothing where it is none.
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
