//! Runs the built helper as the node's spawner does: with three descriptors and limits only.

use std::{
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::FileExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Command, ExitStatus, Stdio},
};

use faasw_compiler::protocol::{
    CompileReport, Compiled, Refusal, Task,
    contract::{INPUT_FD, ISA_FLAG, OUTPUT_FD, REPORT_FD, UNCONFINED_FLAG},
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::fcntl_dupfd_cloexec,
    process::{Resource, Rlimit, setrlimit},
};

/// Lowest descriptor number that cannot collide with the child's numbers.
const CLEAR_OF_CONTRACT: i32 = 10;

/// How the helper is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// Arguments.
    pub arguments: Vec<String>,
    /// Descriptor numbers that the child gets.
    pub descriptors: Vec<i32>,
    /// Processor time, in seconds, before SIGXCPU.
    pub cpu_seconds: Option<u64>,
    /// Most bytes of address space.
    pub address_space: Option<u64>,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            arguments: vec![
                ISA_FLAG.to_owned(),
                "x86-64-v3".to_owned(),
                UNCONFINED_FLAG.to_owned(),
            ],
            descriptors: vec![INPUT_FD, OUTPUT_FD, REPORT_FD],
            cpu_seconds: None,
            address_space: None,
        }
    }
}

/// The outputs of the helper.
#[derive(Debug)]
pub struct Run {
    pub status: ExitStatus,
    pub artifact: Vec<u8>,
    pub report: Vec<u8>,
    pub diagnostics: String,
}

impl Run {
    /// Returns the report's result; there must be one.
    pub fn result(&self) -> Result<Compiled, Refusal> {
        assert_eq!(self.status.code(), Some(0), "{}", self.diagnostics);
        CompileReport::parse(&self.report).unwrap().result
    }

    /// Returns the refusal; nothing may have been compiled.
    pub fn refusal(&self) -> Refusal {
        let refusal = self.result().expect_err("the upload was compiled");
        assert!(
            self.artifact.is_empty(),
            "a refused upload left an artifact"
        );
        refusal
    }

    /// Returns how it ended without a report, as one number: exit code or negated signal.
    pub fn end_without_report(&self) -> i32 {
        assert!(
            self.report.is_empty(),
            "a helper that was cut off left a report"
        );
        match self.status.signal() {
            Some(signal) => -signal,
            None => self.status.code().unwrap(),
        }
    }
}

/// Compiles `upload` without limits.
pub fn compile(upload: &[u8]) -> Run {
    start(upload, &Start::default())
}

/// Compiles `upload`.
pub fn start(upload: &[u8], start: &Start) -> Run {
    perform(&Task::Compile, upload, &[], start)
}

/// Performs a task with `upload`, followed by `state`.
pub fn perform(task: &Task, upload: &[u8], state: &[u8], start: &Start) -> Run {
    let input = [&task.front(false, upload.len() as u64), upload, state].concat();
    run(&input, start)
}

/// Runs the helper on an input.
pub fn run(input: &[u8], start: &Start) -> Run {
    let files = [memory_file(input), memory_file(&[]), memory_file(&[])];
    let [input, output, report] = &files;
    let given: Vec<(i32, i32)> = [(input, INPUT_FD), (output, OUTPUT_FD), (report, REPORT_FD)]
        .into_iter()
        .filter(|(_, number)| start.descriptors.contains(number))
        .map(|(file, number)| (file.as_raw_fd(), number))
        .collect();
    // Descriptors that the tests themselves inherited must not occupy these numbers.
    let withheld: Vec<i32> = [INPUT_FD, OUTPUT_FD, REPORT_FD]
        .into_iter()
        .filter(|number| !start.descriptors.contains(number))
        .collect();
    let limits = [
        (Resource::Cpu, start.cpu_seconds),
        (Resource::As, start.address_space),
        // A core file of a killed helper has no use.
        (Resource::Core, Some(0)),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_faasw-compiler"));
    command
        .args(&start.arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec only system calls are made, and nothing is
    // allocated; the descriptors are open until the command has run.
    unsafe {
        command.pre_exec(move || {
            for (file, number) in &given {
                if libc::dup2(*file, *number) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            for number in &withheld {
                libc::close(*number);
            }
            for (resource, limit) in limits {
                if limit.is_some() {
                    setrlimit(
                        resource,
                        Rlimit {
                            current: limit,
                            maximum: limit.map(|limit| limit + 1),
                        },
                    )?;
                }
            }
            Ok(())
        });
    }
    let done = command.output().unwrap();
    Run {
        status: done.status,
        artifact: contents(output),
        report: contents(report),
        diagnostics: String::from_utf8_lossy(&done.stderr).into_owned(),
    }
}

fn memory_file(contents: &[u8]) -> File {
    let memfd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    let clear: OwnedFd = fcntl_dupfd_cloexec(&memfd, CLEAR_OF_CONTRACT).unwrap();
    let file = File::from(clear);
    file.write_all_at(contents, 0).unwrap();
    file
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
