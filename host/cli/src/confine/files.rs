//! Restricts a node to the files that it needs, on systems with Landlock (landlock(7)).
//!
//! Rules apply to folders, so a file that replaces another one there is covered, too. Open files,
//! sockets and files in memory are not restricted.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use faasw::{
    ServerAddress,
    host::{Finding, FindingState},
};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, LandlockStatus, NetPort, RestrictionStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};

use super::super::exit::Exit;

/// The newest version of Landlock that was tested. On older ones, everything that they support is
/// used.
pub const VERSION: ABI = ABI::V6;

/// Paths of the system that the node and the C library read.
const READ: &[&str] = &[
    "/proc/self",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm",
    "/proc/sys/kernel",
    // These show which limit of namespaces was reached.
    "/proc/sys/user",
    "/sys/devices/system/cpu",
    // This shows whether seeds can be read in parts (`has_small_pages` of the pool).
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/fs/cgroup",
];

/// Devices that the node uses.
const USED: &[&str] = &["/dev/kvm", "/dev/null", "/dev/urandom"];

/// Folders from which the C library and its plug-ins read how to resolve names.
const NAMES: &[&str] = &[
    "/etc",
    "/run",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/nix/store",
    "/gnu/store",
];

/// The port on which DNS servers answer queries that are too long for a datagram.
const DNS: u16 = 53;

/// Restricts this process to what resolving and connecting to this address requires.
///
/// # Errors
/// Returns an error if the kernel rejects the rules.
pub fn restrict_dialer(address: &ServerAddress) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let (names, ports) = match address {
        ServerAddress::Tcp(_, port) => (NAMES, vec![*port, DNS]),
        // Landlock does not check the path when a process connects to a socket.
        _ => (&[][..], Vec::new()),
    };
    let port = |port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::ConnectTcp));
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(path_beneath_rules(names, read))?
        .add_rules(ports.into_iter().map(port))?
        .restrict_self()
        .map(|_| ())
}

/// The files of a node.
#[derive(Debug, Default)]
pub struct Files {
    /// The data directory, which the node reads and writes.
    pub data_dir: Option<PathBuf>,
    /// A folder that was made for the node, and that the node removes at its end.
    pub passing: Option<PathBuf>,
    /// Files that the node reads again when they change.
    pub read: Vec<PathBuf>,
    /// Files that the node writes, renames and creates anew.
    pub rotated: Vec<PathBuf>,
}

impl Files {
    /// Restricts this process and its children to these files and the system's paths. Has no effect
    /// on systems without Landlock.
    ///
    /// # Errors
    /// Returns an error if the data directory cannot be made or the kernel rejects the rules.
    pub fn restrict(&self) -> Result<(), Exit> {
        if let Some(path) = &self.data_dir {
            // A rule requires that the folder exists.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| {
                let path = path.display();
                Exit::failure(format_args!(
                    "cannot create the data directory {path}: {error}"
                ))
            })?;
        }
        self.enforce()
            .map(|_| ())
            .map_err(|error| Exit::failure(format_args!("files cannot be restricted: {error}")))
    }

    fn enforce(&self) -> Result<RestrictionStatus, RulesetError> {
        let all = AccessFs::from_all(VERSION);
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let rotate = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile;
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let own = all
            & !(AccessFs::Execute | AccessFs::IoctlDev | AccessFs::MakeBlock | AccessFs::MakeChar);
        let above = self.passing.as_deref().and_then(Path::parent);
        Ruleset::default()
            .handle_access(all)?
            // The node makes no connections. It binds its addresses before the filter forbids that.
            .handle_access(AccessNet::ConnectTcp)?
            .scope(Scope::from_all(VERSION))?
            .create()?
            .add_rules(path_beneath_rules(&self.data_dir, own))?
            .add_rules(path_beneath_rules(&self.passing, own))?
            .add_rules(path_beneath_rules(above, AccessFs::RemoveDir))?
            .add_rules(path_beneath_rules(folders(&self.read), read))?
            .add_rules(path_beneath_rules(folders(&self.rotated), rotate))?
            .add_rules(path_beneath_rules(READ, read))?
            .add_rules(path_beneath_rules(USED, device))?
            .restrict_self()
    }
}

/// Returns the folders of files: those of the paths, those of the targets if the paths are links,
/// and paths that are folders themselves.
fn folders(files: &[PathBuf]) -> Vec<PathBuf> {
    let real = files.iter().filter_map(|path| fs::canonicalize(path).ok());
    let given = files.iter().cloned();
    let folder = |path: PathBuf| match path.parent() {
        _ if path.is_dir() => path,
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    given.chain(real).map(folder).collect()
}

/// Returns what `doctor` reports about Landlock on this host.
pub fn finding() -> Finding {
    let (state, detail) = match landlock_status() {
        Some(LandlockStatus::Available { effective_abi, .. }) => (
            FindingState::Good,
            format!(
                "Landlock {}: a node can access only its own files",
                effective_abi as i32
            ),
        ),
        Some(LandlockStatus::NotEnabled) => (
            FindingState::Poor,
            "Landlock is disabled (the kernel's lsm=): a compromised node can access all files of \
             its user"
                .to_owned(),
        ),
        _ => (
            FindingState::Poor,
            "the kernel has no Landlock (Linux 5.13 and later may have it): a compromised node can \
             access all files of its user"
                .to_owned(),
        ),
    };
    Finding {
        what: "files of the node",
        state,
        detail,
    }
}

/// Tests Landlock in a thread that restricts itself and ends.
fn landlock_status() -> Option<LandlockStatus> {
    let tried = std::thread::spawn(|| {
        Ruleset::default()
            .handle_access(AccessFs::Execute)?
            .create()?
            .restrict_self()
    });
    tried.join().ok()?.ok().map(|status| status.landlock)
}
