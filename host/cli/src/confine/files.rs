//! Which files a node can reach, where the system has Landlock (landlock(7)).
//!
//! Rules are for folders: what is put in another's place there counts, too. Files that are
//! open, sockets and files in memory are not held to them.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use faasw::{
    ServerAddress,
    host::{Finding, State},
};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, LandlockStatus, NetPort, RestrictionStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};

use super::super::exit::Exit;

/// The newest that this was tried with; of older ones everything is used that they have.
const VERSION: ABI = ABI::V6;

/// What the node and the C library read of the system.
const READ: &[&str] = &[
    "/proc/self",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm",
    "/proc/sys/kernel",
    // Which limit of namespaces was reached.
    "/proc/sys/user",
    "/sys/devices/system/cpu",
    // Whether seeds can be read in parts (`has_small_pages` of the pool).
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/fs/cgroup",
];

/// Devices.
const USED: &[&str] = &["/dev/kvm", "/dev/null", "/dev/urandom"];

/// Where the C library, and what it loads for it, reads how names are resolved.
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

/// Where servers of names answer what is too long for a datagram.
const DNS: u16 = 53;

/// Allows this process what finding and calling this address takes.
///
/// # Errors
/// When the kernel refuses.
pub fn restrict_dialer(address: &ServerAddress) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let (names, ports) = match address {
        ServerAddress::Tcp(_, port) => (NAMES, vec![*port, DNS]),
        // The path of a socket that is connected to is not held to rules.
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
    /// What it writes, and nothing beside.
    pub data_dir: Option<PathBuf>,
    /// A folder that was made for it, and that it removes at its end.
    pub passing: Option<PathBuf>,
    /// Files that it reads again when they change.
    pub read: Vec<PathBuf>,
    /// Files that it writes to, renames and makes anew.
    pub rotated: Vec<PathBuf>,
}

impl Files {
    /// Allows this process, and what it makes, these files and what reading the system
    /// takes; without effect where there is no Landlock.
    ///
    /// # Errors
    /// When the data directory cannot be made, or the kernel refuses.
    pub fn restrict(&self) -> Result<(), Exit> {
        if let Some(path) = &self.data_dir {
            // A rule is for a folder that is there.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| {
                let path = path.display();
                Exit::failure(format_args!(
                    "the data directory {path} cannot be made: {error}"
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
            // Nobody is called; addresses are taken before the filter forbids that.
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

/// The folders of files: where they are said to be, and where they are, should that be a link; and
/// folders that are named themselves.
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

/// What this host offers.
pub fn finding() -> Finding {
    let (state, detail) = match offered() {
        Some(LandlockStatus::Available { effective_abi, .. }) => (
            State::Good,
            format!(
                "Landlock {}: a node reaches its own files alone",
                effective_abi as i32
            ),
        ),
        Some(LandlockStatus::NotEnabled) => (
            State::Poor,
            "Landlock is turned off (lsm= of the kernel): a node that is taken over reaches all \
             files of its user"
                .to_owned(),
        ),
        _ => (
            State::Poor,
            "the kernel has no Landlock (5.13 and later may): a node that is taken over reaches \
             all files of its user"
                .to_owned(),
        ),
    };
    Finding {
        what: "files of the node",
        state,
        detail,
    }
}

/// Asked by a thread that restricts itself and ends.
fn offered() -> Option<LandlockStatus> {
    let tried = std::thread::spawn(|| {
        Ruleset::default()
            .handle_access(AccessFs::Execute)?
            .create()?
            .restrict_self()
    });
    tried.join().ok()?.ok().map(|status| status.landlock)
}
