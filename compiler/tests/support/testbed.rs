//! Jails with a test's own program in them as the helper, started as by the spawner.

use std::{
    ffi::CString,
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    process::Command,
};

use faasw_abi::isa::Isa;
use faasw_compiler::protocol::contract::JAIL_FLAG;
use faasw_jail::{
    ConfinementLevel, Network, Site, dup_to_high_fd,
    embedded_program::EmbeddedProgram,
    group::{CgroupLocation, Groups, Share},
    helper::{self, Program},
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid},
};

/// The argument with which this program checks whether it can make jails.
const PROBE: &str = "--can-make-jails";

/// The variable that names the part that a helper plays.
const PART: &str = "FAASW_TEST_PART";

/// Address space of each helper, in bytes: the node's default.
const MEMORY: u64 = 2 << 30;

/// Returns the part that this process plays in a jail, and the jail that it received; `None` if it
/// is not a helper. Must be called first.
pub fn part() -> Option<(String, String)> {
    if std::env::args().nth(1).is_some_and(|word| word == PROBE) {
        Testbed::prepare().remove();
        std::process::exit(0);
    }
    let mut words = std::env::args().skip_while(|word| word != JAIL_FLAG);
    let jail = words.nth(1)?;
    Some((std::env::var(PART).ok()?, jail))
}

/// Returns whether this host allows jails; prints a message if not.
pub fn is_possible() -> bool {
    let probe = Command::new("/proc/self/exe").arg(PROBE).output().unwrap();
    let is_possible = probe.status.success();
    if !is_possible {
        eprintln!(
            "WITHOUT NAMESPACES: the tests of this file are ignored: {}",
            String::from_utf8_lossy(&probe.stderr)
        );
    }
    is_possible
}

/// The place where jails are made: a process with one thread that has left the host's namespaces.
pub struct Testbed {
    site: Site,
    groups: Option<Groups>,
    program: OwnedFd,
    /// Where the program is before the first start, if it must be copied: a file, offset and bytes.
    carrier: Option<(File, u64, u64)>,
    jails: u32,
}

impl Testbed {
    pub fn prepare() -> Self {
        Self::prepare_at(ConfinementLevel::Full)
    }

    pub fn prepare_at(level: ConfinementLevel) -> Self {
        // Nothing must remain when a test is stopped.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let program = File::open("/proc/self/exe").unwrap();
        let share = Share {
            memory: 1 << 30,
            processes: 64,
            weight: 100,
        };
        Self {
            program: dup_to_high_fd(program).unwrap(),
            carrier: None,
            // Before the site, as in the spawner.
            groups: CgroupLocation::find()
                .and_then(|place| Groups::prepare(&place, share))
                .ok(),
            site: Site::prepare(Network::Empty, level).unwrap(),
            jails: 0,
        }
    }

    /// Has the first start copy this program to an empty file of its own, from the middle of
    /// another file. That file is `missing` bytes too short.
    #[allow(dead_code, reason = "one suite is about that")]
    pub fn carry(&mut self, missing: u64) {
        const BEFORE: usize = 12_345;
        let mut program = Vec::new();
        File::open("/proc/self/exe")
            .and_then(|mut own| own.read_to_end(&mut program))
            .unwrap();
        let mut by = file();
        by.write_all(&[1; BEFORE]).unwrap();
        by.write_all(&program).unwrap();
        let bytes = program.len() as u64 + missing;
        self.carrier = Some((by, BEFORE as u64, bytes));
        self.program = executable();
    }

    /// The file that helpers are started from.
    #[allow(dead_code, reason = "one suite is about that")]
    pub fn program(&self) -> &OwnedFd {
        &self.program
    }

    /// Starts this program as a helper, with this much processor time.
    pub fn start(&mut self, part: &str, upload: &[u8], cpu_seconds: u64) -> Inmate {
        self.jails += 1;
        let group = self.groups.as_ref();
        let group = group.map(|groups| groups.group(self.jails).unwrap());
        let inmate = Inmate {
            pid: Pid::INIT,
            input: upload_file(upload),
            output: file(),
            report: file(),
        };
        let variables = [CString::new(format!("{PART}={part}")).unwrap()];
        let program = Program {
            file: self.program.as_fd(),
            carried: self
                .carrier
                .as_ref()
                .map(|(by, offset, bytes)| EmbeddedProgram {
                    by: by.as_fd(),
                    offset: *offset,
                    bytes: *bytes,
                    is_shared: true,
                }),
            variables: &variables,
        };
        let order = helper::HelperLimits {
            isa: Isa::V3.name(),
            cpu_seconds,
            memory_bytes: MEMORY,
        };
        let files = [
            inmate.input.as_fd(),
            inmate.output.as_fd(),
            inmate.report.as_fd(),
        ];
        let jail = (self.jails, group.as_ref());
        let pid = helper::spawn(&self.site, jail, program, &order, files).unwrap();
        Inmate { pid, ..inmate }
    }

    /// Removes everything; all inmates must have ended.
    pub fn remove(self) {
        if let Some(groups) = self.groups {
            groups.remove();
        }
    }
}

/// A helper in its jail.
pub struct Inmate {
    pid: Pid,
    #[allow(dead_code, reason = "it stays open, as the node's does")]
    input: File,
    output: File,
    report: File,
}

impl Inmate {
    #[allow(dead_code, reason = "not every suite has something against it")]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until the helper ends.
    pub fn wait(&self) -> WaitStatus {
        let ended = waitpid(Some(self.pid), WaitOptions::empty()).unwrap();
        ended.unwrap().1
    }

    /// Ends the helper, which must not have ended by itself.
    #[allow(dead_code, reason = "not every suite has one that stays")]
    pub fn end(self) {
        let ended = waitpid(Some(self.pid), WaitOptions::NOHANG).unwrap();
        assert!(ended.is_none(), "it is gone: {ended:?}");
        kill_process(self.pid, Signal::KILL).unwrap();
        self.wait();
    }

    /// Returns the report that the helper has written.
    pub fn report(&self) -> Vec<u8> {
        contents(&self.report)
    }

    /// Returns the artifact that the helper has written.
    #[allow(dead_code, reason = "not every suite makes one")]
    pub fn artifact(&self) -> Vec<u8> {
        contents(&self.output)
    }
}

/// Creates a file as the node does.
fn file() -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("helper", flags).unwrap();
    File::from(dup_to_high_fd(file).unwrap())
}

/// Creates an empty file that may be executed.
fn executable() -> OwnedFd {
    const EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create("program", flags | EXEC) {
        // For kernels that do not know the flag.
        Err(Errno::INVAL) => memfd_create("program", flags),
        made => made,
    };
    dup_to_high_fd(file.unwrap()).unwrap()
}

fn upload_file(upload: &[u8]) -> File {
    let mut file = file();
    file.write_all(upload).unwrap();
    let file = file.into();
    faasw_seedtree::seal(&file).unwrap();
    file.into()
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
