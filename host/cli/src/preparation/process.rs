//! Starts the process that parses a script's modules, and reads its result.

use std::{
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream,
            process::{CommandExt as _, ExitStatusExt as _},
        },
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use faasw::script::SCRIPT_MAX;

use super::worker::{COMMAND, PROGRESS, REPORT, Report};
use crate::exit::Exit;

/// How long a preparation may take: large scripts take seconds on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between checks whether a process that has closed its output has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// Maximum bytes that the process may write: a bundle, its report and the paths of its files.
const OUTPUT_MAX: usize = SCRIPT_MAX + (32 << 20);

/// Prepares the script that begins with a file, in a process of its own. `folder` is the script's
/// folder, if it is not the file's. The bundle is empty if the report has an error.
///
/// # Errors
/// Returns an error if the process cannot be started, fails, or takes too long.
pub fn prepare(entry: &Path, folder: Option<&Path>) -> Result<(Report, Bytes), Exit> {
    let (mut stream, mut child) = start(entry, folder).map_err(|error| {
        Exit::failure(format_args!(
            "{}: the preparation cannot be started: {error}",
            entry.display()
        ))
    })?;
    let deadline = Instant::now() + TIMEOUT;
    let read = read_all(&mut stream, deadline);
    if read.is_err() {
        let _ = child.kill();
    }
    let status = wait(&mut child, deadline);
    let output = read.map_err(|error| {
        Exit::failure(format_args!(
            "{}: the preparation was stopped: {error}",
            entry.display()
        ))
    })?;
    let output = Bytes::from(output);
    match (parse(&output), status) {
        (Some(parsed), Ok(status)) if status.success() => Ok(parsed),
        (_, status) => Err(failure(entry, &output, status.ok())),
    }
}

fn start(entry: &Path, folder: Option<&Path>) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0("faasw-prepare")
        .args([COMMAND, "--"])
        .arg(entry)
        .args(folder)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::null())
        .spawn()?;
    Ok((ours, child))
}

/// Reads until the process closes its output.
fn read_all(stream: &mut UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    let mut piece = vec![0; 1 << 18];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = TIMEOUT.as_secs();
            return Err(io::Error::other(format!("it took longer than {seconds} s")));
        }
        stream.set_read_timeout(Some(left))?;
        let length = match stream.read(&mut piece) {
            Ok(0) => return Ok(output),
            Ok(length) => length,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        output.extend_from_slice(piece.get(..length).unwrap_or_default());
        if output.len() > OUTPUT_MAX {
            return Err(io::Error::other("its result is too large"));
        }
    }
}

/// Waits for the end of the process, which may go on after it has closed its output. Kills it at
/// the deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(PAUSE);
    }
    let _ = child.kill();
    child.wait()
}

/// Returns the report and the bundle of a complete output.
fn parse(output: &Bytes) -> Option<(Report, Bytes)> {
    let mut rest = output.clone();
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest.split_to(end + 1);
        match line.split_first()? {
            (&PROGRESS, _) => {}
            (&REPORT, report) => return Some((serde_json::from_slice(report).ok()?, rest)),
            _ => return None,
        }
    }
}

/// Returns the failure of a process that ended without a report. Its output names the file.
fn failure(entry: &Path, output: &[u8], status: Option<ExitStatus>) -> Exit {
    let lines = output.split(|byte| *byte == b'\n');
    let last = lines
        .filter_map(|line| line.strip_prefix(&[PROGRESS]))
        .next_back();
    let file = match last {
        Some(path) => String::from_utf8_lossy(path).into_owned(),
        None => entry.display().to_string(),
    };
    let reason = match status.and_then(|status| status.signal()) {
        Some(libc::SIGSEGV | libc::SIGABRT | libc::SIGBUS) => {
            "it is nested too deeply, or it needs too much memory".to_owned()
        }
        Some(libc::SIGXCPU | libc::SIGKILL) => "it takes too long".to_owned(),
        Some(signal) => format!("the parser ended by signal {signal}"),
        None => "the parser failed".to_owned(),
    };
    Exit::failure(format_args!("{file} cannot be parsed: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_paths_a_report_and_a_bundle() {
        let output = Bytes::from_static(
            b"Pa.ts\nPb.ts\n\
            R{\"error\":null,\"warnings\":[],\"inputs\":[\"a\"],\"is_plain\":false}\nx\ny",
        );
        let (report, bundle) = parse(&output).unwrap();
        assert_eq!(report.inputs, ["a"]);
        assert_eq!(bundle, "x\ny");
        for broken in ["", "Pa.ts\n", "Pa.ts", "R{}\n", "x\n"] {
            assert!(
                parse(&Bytes::from_static(broken.as_bytes())).is_none(),
                "{broken}"
            );
        }
    }

    #[test]
    fn a_killed_process_names_the_last_file() {
        let status = Some(ExitStatus::from_raw(libc::SIGSEGV));
        let exit = failure(Path::new("a.ts"), b"Pa.ts\nPsrc/deep.ts\n", status);
        assert!(exit.to_string().starts_with("src/deep.ts cannot"), "{exit}");
        let exit = failure(Path::new("a.ts"), b"", Some(ExitStatus::from_raw(9)));
        assert!(exit.to_string().starts_with("a.ts cannot"), "{exit}");
    }
}
