//! Connections to the key-value server, for a node that cannot make any.
//!
//! A node that has confined itself makes no connections. If it could connect to one server, it
//! could connect to others, because neither a filter nor Landlock knows addresses. So a process
//! that is started earlier makes these connections. It receives one address at its start, resolves
//! the name anew each time, and hands over a connected socket whenever the node requests one. It
//! has no password, reads nothing that the server sends, and ends with the node.

use std::{
    ffi::OsStr,
    io::{self, IoSlice, Read as _},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream as BlockingUnix, process::CommandExt as _},
    },
    process::{Child, Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use faasw::{Dial, Dialing, ServerAddress};
use faasw_common::packet::{self, Descriptors};
use faasw_jail::{CapabilitySet, confine_daemon};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType},
    process::{Gid, Uid},
};
use tokio::{io::Interest, net::UnixStream, sync::Mutex};

use super::{files, filter};
use crate::{args::DialKv, exit::Exit, output};

/// The hidden command that makes this program a dialer.
const COMMAND: &str = "dial-kv";

/// Maximum size of a dialer's message in bytes.
const MESSAGE_MAX: usize = 512;

/// The dialer's message that accompanies a connection.
const CONNECTED: &str = "connected";

/// How long the node waits for the dialer to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The unprivileged user and group id 65534.
const NOBODY: u32 = 65_534;

/// The node's handle of the dialer process.
#[derive(Debug)]
pub struct Dialer {
    requests: Arc<Mutex<RequestSocket>>,
    /// The dialer's standard output, to which it writes nothing. It becomes readable when the
    /// process ends.
    ending: BlockingUnix,
    /// A copy of the socket for requests, which can be shut down while a request holds the lock.
    socket: BlockingUnix,
    child: Child,
}

/// The socket for requests to the dialer.
#[derive(Debug)]
enum RequestSocket {
    /// The socket before the first request, when there was no runtime yet.
    Unregistered(Option<BlockingUnix>),
    Registered(UnixStream),
}

impl Dialer {
    /// Starts the dialer. This process must not have confined itself yet.
    ///
    /// # Errors
    /// Returns the system's error if the sockets cannot be made or the process cannot be started.
    pub fn start(address: &ServerAddress) -> io::Result<Self> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let requests = BlockingUnix::from(ours);
        requests.set_nonblocking(true)?;
        let socket = requests.try_clone()?;
        let (ending, end) = BlockingUnix::pair()?;
        ending.set_nonblocking(true)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("faasw-dial").args([COMMAND, "--"]).env_clear();
        match address {
            ServerAddress::Tcp(host, port) => command.arg(host).arg(port.to_string()),
            ServerAddress::Unix(path) => command.arg(path),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        command.stdin(theirs).stdout(OwnedFd::from(end));
        Ok(Self {
            requests: Arc::new(Mutex::new(RequestSocket::Unregistered(Some(requests)))),
            ending,
            socket,
            child: command.spawn()?,
        })
    }

    /// Waits until the dialer has ended. It does not end by itself while the node runs.
    ///
    /// # Errors
    /// Returns the system's error if waiting is impossible.
    pub async fn ended(&self) -> io::Result<()> {
        let ending = UnixStream::from_std(self.ending.try_clone()?)?;
        ending.readable().await
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let ended = self
            .ending
            .set_nonblocking(false)
            .and_then(|()| self.ending.set_read_timeout(Some(EXIT_TIMEOUT)))
            .and_then(|()| self.ending.read(&mut [0]));
        // A dialer that is still connecting is reaped by the process that adopts this process's
        // children.
        if ended.is_ok() {
            let _ = self.child.wait();
        }
    }
}

impl Dial for Dialer {
    fn dial(&self) -> Dialing {
        let requests = self.requests.clone();
        Box::pin(async move {
            // A caller that is dropped while it waits for the lock leaves the queue. The request
            // runs as a task, so that a caller that is dropped later does not leave an answer
            // behind, which the next caller would take for its own.
            let mut requests = requests.lock_owned().await;
            let answer = tokio::spawn(async move { requests.request().await });
            answer.await.map_err(io::Error::other)?
        })
    }
}

impl RequestSocket {
    async fn request(&mut self) -> io::Result<OwnedFd> {
        if let Self::Unregistered(socket) = self {
            let socket = socket.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Self::Registered(UnixStream::from_std(socket)?);
        }
        let Self::Registered(socket) = self else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let sent = rustix::net::send(&*socket, b"?", SendFlags::NOSIGNAL);
        sent.map_err(|_| dialer_has_ended())?;
        loop {
            socket.readable().await?;
            match socket.try_io(Interest::READABLE, || receive(socket.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                answer => return answer,
            }
        }
    }
}

fn dialer_has_ended() -> io::Error {
    io::Error::other("the process that connects to it has ended; start the node again")
}

/// Receives the socket that the dialer hands over, or its error message.
fn receive(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut text = [0; MESSAGE_MAX];
    let mut received = packet::receive(socket, &mut text, Descriptors::Accept, RecvFlags::empty())?;
    if received.length == 0 {
        return Err(dialer_has_ended());
    }
    if received.has_lost_fds {
        return Err(Errno::MFILE.into());
    }
    let text = text.get(..received.length).unwrap_or_default();
    let failed = || io::Error::other(String::from_utf8_lossy(text).into_owned());
    received.fds.pop().ok_or_else(failed)
}

/// Runs the dialer, until the node closes its end of standard input.
pub fn run_dialer(args: &DialKv) -> ExitCode {
    let dialed = match address(args) {
        Some(address) => dial(&address),
        None => Err(Exit::usage("not a name and a port, or a path")),
    };
    match dialed {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => output::report(&exit),
    }
}

fn address(args: &DialKv) -> Option<ServerAddress> {
    match args.at.as_slice() {
        [path] => Some(ServerAddress::Unix(path.into())),
        [host, port] => {
            let text = |word: &OsStr| word.to_str().map(str::to_owned);
            Some(ServerAddress::Tcp(text(host)?, text(port)?.parse().ok()?))
        }
        _ => None,
    }
}

fn dial(address: &ServerAddress) -> Result<(), Exit> {
    // Ctrl-C in a terminal is for the node only.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"faasw-dial");
    confine(address)?;
    let node = io::stdin();
    loop {
        match rustix::net::recv(&node, &mut [0; 1][..], RecvFlags::empty()) {
            Ok((1.., _)) => {}
            Ok(_) | Err(Errno::CONNRESET) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(Exit::failure(error)),
        }
        let connected = address.connect();
        let text = match &connected {
            Ok(_) => CONNECTED.to_owned(),
            Err(error) => error.to_string(),
        };
        match hand_over(node.as_fd(), &text, connected.ok().as_ref()) {
            Ok(()) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(Exit::failure(error)),
        }
    }
}

fn hand_over(node: BorrowedFd<'_>, text: &str, socket: Option<&OwnedFd>) -> Result<(), Errno> {
    let text = text.as_bytes();
    let text = [IoSlice::new(text.get(..MESSAGE_MAX).unwrap_or(text))];
    let socket = socket.map(AsFd::as_fd);
    packet::send(node, &text, socket.as_slice(), SendFlags::empty())
}

/// Gives up everything that connecting to this address does not require.
fn confine(address: &ServerAddress) -> Result<(), Exit> {
    let failed = |error: &dyn std::fmt::Display| {
        Exit::failure(format_args!(
            "the key-value server's dialer is not confined: {error}"
        ))
    };
    let kept = match address {
        // The permissions of a socket in the file system decide who may connect. Root bypasses
        // them, so the dialer keeps this capability.
        ServerAddress::Unix(_) => CapabilitySet::DAC_OVERRIDE,
        _ => {
            become_nobody();
            CapabilitySet::empty()
        }
    };
    confine_daemon(kept).map_err(|error| failed(&error))?;
    files::restrict_dialer(address).map_err(|error| failed(&error))?;
    let filter = filter::of_dialer(address).map_err(|error| failed(&error))?;
    filter.install().map_err(|error| failed(&error))
}

/// Changes the user from root to [`NOBODY`], so that root's files are out of reach. If that is not
/// possible, the user stays the same, but has no privileges either.
fn become_nobody() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let _ = rustix::thread::set_thread_groups(&[])
        .and_then(|()| rustix::thread::set_thread_res_gid(group, group, group))
        .and_then(|()| rustix::thread::set_thread_res_uid(user, user, user));
}
