//! Starting the program of spawners: as a child of this process, or by a launcher that was started
//! before this process gave up the privileges for that.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use faasw_fri::messages::{Kill, Launch, NamesOpened, OpenNames};
use faasw_fri::{receive, send};
use faasw_jail::{ConfinementLevel, Network};
use faasw_sandbox::launcher::{ARGUMENT, OUTSIDE, REDUCED};
use faasw_sandbox::process::programs::{self, ProgramDescriptors};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;

use super::executable::{self, DeferredProgram};
use super::watch::{into_io, watch};
#[cfg(feature = "ablation")]
use crate::ablation::Mechanism;

/// A small process that starts spawners for a program that confines itself: it keeps the necessary
/// privileges while the program gives them up. See [`Launcher::start`].
#[derive(Debug)]
pub struct Launcher {
    /// Open as long as the launcher is used.
    socket: Option<OwnedFd>,
    child: Child,
}

impl Launcher {
    /// Starts the launcher. It has the privileges, the control group and the filters that this
    /// process has now, and passes them on to spawners. It ends when this is dropped, or when this
    /// process ends.
    ///
    /// # Errors
    /// Returns the error of the system if it cannot be started.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = faasw_fri::pair()?;
        let program = SpawnerProgram {
            name: "faasw-launcher",
            arguments: vec![ARGUMENT],
        };
        let child = execute(program, &theirs)?;
        Ok(Self {
            socket: Some(ours),
            child,
        })
    }

    /// Orders a spawner whose jails have this network and level, and that communicates over
    /// `socket`.
    fn launch(
        &self,
        network: Network,
        level: ConfinementLevel,
        socket: &OwnedFd,
    ) -> io::Result<SpawnerProcess> {
        let (ours, theirs) = faasw_fri::pair()?;
        let launcher = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let fds = [socket.as_fd(), theirs.as_fd()];
        let order = Launch { network, level };
        send(launcher, &order, &fds, SendFlags::DONTWAIT).map_err(into_io)?;
        Ok(SpawnerProcess::Launched(ours))
    }

    /// Opens the files that configure name resolution on this host, `/etc/hosts` and
    /// `/etc/resolv.conf`, if they exist. For a process that cannot open them any more. Must be
    /// called inside a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if a file exists but cannot be opened, or if the launcher does not answer.
    pub(crate) async fn open_resolver_files(&self) -> io::Result<[Option<OwnedFd>; 2]> {
        let (ours, theirs) = faasw_fri::pair()?;
        let launcher = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let fds = [theirs.as_fd()];
        send(launcher, &OpenNames {}, &fds, SendFlags::DONTWAIT).map_err(into_io)?;
        drop(theirs);
        let answers = watch(ours)?;
        let answer = answers.async_io(Interest::READABLE, |answers| {
            receive(answers, RecvFlags::DONTWAIT).map_err(into_io)
        });
        let mut answer = answer.await?;
        let NamesOpened { hosts, servers } = answer.message().map_err(into_io)?;
        let mut files = answer.take_fds().into_iter().flatten();
        Ok([hosts, servers].map(|is_there| is_there.is_yes().then(|| files.next()).flatten()))
    }

    /// Waits until the launcher has ended, which it does not do by itself: from then on no spawner
    /// can be started. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// Returns the error of the system if the launcher cannot be waited for.
    pub async fn ended(&self) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // The launcher never sends anything here: readability means the end.
        watch(socket.try_clone()?)?.readable().await.map(|_| ())
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.socket = None;
        let _ = self.child.wait();
    }
}

/// A spawner's process.
#[derive(Debug)]
pub(crate) enum SpawnerProcess {
    /// A child of this process.
    Child(Child),
    /// A child of the launcher. The launcher closes its side of this socket once it has reaped the
    /// child, and kills the child when it receives a message over it.
    Launched(OwnedFd),
}

impl SpawnerProcess {
    /// Starts a spawner whose jails have this network and level, and that communicates over
    /// `socket`: by `launcher` if there is one, else as a child of this process.
    pub(crate) fn start(
        launcher: Option<&Launcher>,
        network: Network,
        level: ConfinementLevel,
        socket: &OwnedFd,
    ) -> io::Result<Self> {
        let mut program = match network {
            Network::Empty => SpawnerProgram {
                name: "faasw-spawner",
                arguments: Vec::new(),
            },
            Network::Host => SpawnerProgram {
                name: "faasw-outside",
                arguments: vec![OUTSIDE],
            },
        };
        if level == ConfinementLevel::Reduced {
            program.arguments.push(REDUCED);
        }
        match launcher {
            Some(launcher) => launcher.launch(network, level, socket),
            None => execute(program, socket).map(Self::Child),
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) -> io::Result<()> {
        match self {
            Self::Child(child) => child_ended(child).await,
            Self::Launched(life) => watch(life.try_clone()?)?.readable().await.map(|_| ()),
        }
    }

    /// Ends it if it has not ended, and reaps it.
    pub(crate) async fn reap(self) {
        match self {
            Self::Child(mut child) => {
                let reaped = tokio::task::spawn_blocking(move || {
                    let _ = child.kill();
                    child.wait()
                });
                let _ = reaped.await;
            }
            Self::Launched(ref life) => {
                // Fails if it has been reaped.
                if send(life, &Kill { token: 0 }, &[], SendFlags::DONTWAIT).is_ok() {
                    let _ = self.ended().await;
                }
            }
        }
    }
}

/// Waits until a child has ended, without reaping it.
async fn child_ended(child: &Child) -> io::Result<()> {
    let number = i32::try_from(child.id()).map_err(io::Error::other)?;
    let number = Pid::from_raw(number).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(number, PidfdFlags::NONBLOCK)?;
    watch(process)?.readable().await.map(|_| ())
}

/// The name and arguments of the program.
#[derive(Debug)]
struct SpawnerProgram {
    name: &'static str,
    arguments: Vec<&'static str>,
}

/// Returns the program's file, and an additional argument.
fn file() -> io::Result<(OwnedFd, Option<String>)> {
    #[cfg(feature = "trial")]
    if let Some((program, argument)) = crate::trial::spawner()? {
        return Ok((program, Some(argument)));
    }
    let program = executable::prepare(c"faasw-sandbox", faasw_bundled::SANDBOX)?;
    #[cfg(feature = "ablation")]
    if Mechanism::Jail.is_off() {
        return Ok((program, Some(faasw_jail::WITHOUT_JAIL.to_owned())));
    }
    Ok((program, None))
}

/// A program that the spawner executes, or its place in this process's file.
struct PreparedProgram {
    numbers: ProgramDescriptors,
    deferred: DeferredProgram,
}

impl PreparedProgram {
    fn prepare(
        numbers: ProgramDescriptors,
        name: &CStr,
        program: &'static [u8],
    ) -> io::Result<Self> {
        let deferred = executable::prepare_deferred(name, program)?;
        Ok(Self { numbers, deferred })
    }

    /// Returns the argument that describes the program's place, if the program still has to be
    /// written to its file.
    fn argument(&self) -> Option<String> {
        let range = self.deferred.range.as_ref()?;
        let begin = self.numbers.argument;
        Some(format!("{begin}{},{}", range.offset, range.bytes))
    }

    fn descriptors(&self) -> impl Iterator<Item = (RawFd, &OwnedFd)> {
        let by = self.deferred.range.as_ref().map(|range| &range.file);
        let file = (self.numbers.file, &self.deferred.file);
        let carrier = self.numbers.carrier;
        [file].into_iter().chain(by.map(move |by| (carrier, by)))
    }
}

/// Starts the program with a socket, and with the descriptors of the programs that it executes.
#[expect(
    unsafe_code,
    reason = "the child's descriptors must be at fixed numbers before exec"
)]
fn execute(program: SpawnerProgram, socket: &OwnedFd) -> io::Result<Child> {
    // Descriptor numbers that the moves below cannot overwrite.
    let clear = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, programs::END);
    // The originals stay open, too, so that the pipe over which the standard library reports errors
    // has none of the child's numbers.
    let (program_file, argument) = file()?;
    let file = clear(&program_file)?;
    let carried = [
        PreparedProgram::prepare(
            programs::COMPILER,
            c"faasw-compiler",
            faasw_bundled::COMPILER,
        )?,
        PreparedProgram::prepare(programs::EGRESS, c"faasw-egress", faasw_bundled::EGRESS)?,
    ];
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let descriptors = [(faasw_sandbox::NODE_FD, socket)].into_iter();
    let descriptors = descriptors.chain(carried.iter().flat_map(PreparedProgram::descriptors));
    let descriptors = descriptors.map(|(number, fd)| Ok((number, clear(fd)?)));
    let descriptors: Vec<(RawFd, OwnedFd)> = descriptors.collect::<io::Result<_>>()?;
    let moves = descriptors
        .iter()
        .map(|(number, fd)| (*number, fd.as_raw_fd()));
    let moves: Vec<(RawFd, RawFd)> = moves.collect();
    let mut command = Command::new(path);
    command
        .arg0(program.name)
        .args(program.arguments)
        .args(argument)
        .args(carried.iter().filter_map(PreparedProgram::argument))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // SAFETY: between fork and exec only dup2 is called, which is safe there.
    unsafe {
        command.pre_exec(move || {
            for (number, source) in &moves {
                if libc::dup2(*source, *number) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}
