//! The three descriptors that the helper is started with.
#![allow(unsafe_code, reason = "descriptors are taken over by their numbers")]

use std::{
    fs::File,
    io::Write,
    mem::ManuallyDrop,
    os::{
        fd::{BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use crate::protocol::{
    Refusal, RefusalKind,
    contract::{INPUT_FD, INPUT_MAX, OUTPUT_FD, REPORT_FD},
};

/// Input, output and report. They are closed by the end of the process, so that a jail need not
/// allow a system call for that.
#[derive(Debug)]
pub struct Descriptors {
    input: ManuallyDrop<File>,
    output: ManuallyDrop<File>,
    report: ManuallyDrop<File>,
}

impl Descriptors {
    /// Takes ownership of the inherited descriptors. Must be called once, before anything is opened
    /// that could get their numbers.
    pub fn take() -> Result<Self, String> {
        Ok(Self {
            input: take(INPUT_FD)?,
            output: take(OUTPUT_FD)?,
            report: take(REPORT_FD)?,
        })
    }

    /// Reads the node's input.
    pub fn read_input(&self) -> Result<Vec<u8>, Refusal> {
        // `fstat` takes the descriptor alone. The call in `File::metadata` takes a path, too, which
        // a filter cannot see.
        let status = rustix::fs::fstat(&*self.input)
            .map_err(|errno| failed("read the upload")(errno.into()))?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        if bytes > INPUT_MAX {
            return Err(Refusal::new(
                RefusalKind::Unsupported,
                format!(
                    "the input has {} MiB; the limit is {} MiB",
                    bytes >> 20,
                    INPUT_MAX >> 20
                ),
            ));
        }
        // Reads at an offset, because the descriptor shares its position with the node's.
        let mut upload = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        self.input
            .read_exact_at(&mut upload, 0)
            .map_err(failed("read the upload"))?;
        Ok(upload)
    }

    /// Writes to the output, at an offset in bytes.
    pub fn write_output(&self, bytes: &[u8], offset: u64) -> Result<(), Refusal> {
        self.output
            .write_all_at(bytes, offset)
            .map_err(failed("write the artifact"))
    }

    /// Writes the report, in one piece and as the last output.
    pub fn write_report(&mut self, json: &[u8]) -> Result<(), String> {
        self.report
            .write_all(json)
            .map_err(|error| format!("cannot write the report: {error}"))
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Refusal + '_ {
    move |error| Refusal::new(RefusalKind::Internal, format!("cannot {what}: {error}"))
}

fn take(number: i32) -> Result<ManuallyDrop<File>, String> {
    // SAFETY: the number is not negative, and the borrow ends with the check whether the descriptor
    // is open.
    let open = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    if open.is_err() {
        return Err(format!("descriptor {number} is not open"));
    }
    // SAFETY: the descriptor is open, and nothing else owns it: it was open before this process
    // opened anything, and each number is taken once.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(ManuallyDrop::new(file))
}
