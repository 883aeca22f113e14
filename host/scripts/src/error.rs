//! The reasons why a script cannot be prepared.

use std::{io, path::PathBuf};

/// The reason why a script cannot be prepared. The message names file and line and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A file cannot be read.
    #[error("{path} cannot be read: {error}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the failed call.
        error: io::Error,
    },
    /// A source file has an error of syntax.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax {
        /// The file, relative to the project.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The parser's message.
        message: String,
    },
    /// An import names no file.
    #[error("{file}:{line}: the import of {specifier:?} cannot be resolved: {reason}")]
    Unresolved {
        /// The importing file, relative to the project.
        file: String,
        /// The line of the import.
        line: usize,
        /// The text of the import.
        specifier: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// A file of the project's configuration is invalid.
    #[error("{0}")]
    Configuration(String),
    /// The files together are too large.
    #[error(
        "the script and its packages have more than {limit} MiB: import smaller packages, or \
         bundle and minify it (see docs/javascript.md)"
    )]
    TooLarge {
        /// The limit in MiB.
        limit: usize,
    },
    /// There are too many files.
    #[error(
        "the script and its packages have more than {limit} files: bundle it (see \
         docs/javascript.md)"
    )]
    TooManyFiles {
        /// The limit.
        limit: usize,
    },
}
