//! The launcher: starts spawners for a node that has given up the privileges that this requires.
//!
//! The node starts the launcher before anything else and before it confines itself, because filters
//! and lost privileges pass to all processes that a process makes. The launcher is this same
//! program, so a spawner is a fork of it. An order brings one end of a socket pair. The launcher
//! holds it for as long as the spawner lives, so that the node notices the spawner's end, whatever
//! caused it. Any message of the node over it is an order to kill the spawner.
//!
//! The other order is to open the two files that define how this host resolves names. They change
//! while a node runs, and a node that has confined itself can no longer open them. The launcher
//! reads neither.
//!
//! The launcher ends with the node. Spawners do not end with it: they end on their own after the
//! node has closed its ends of their sockets.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use faasw_fri::messages::{Launch, NamesOpened};
use faasw_fri::{FriError, Kind, receive, send};
use faasw_jail::Network;
use faasw_jail::filter::Rule;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::process::programs::{self, Programs};
use crate::process::{child_signal, close_from, drain_signal, name_process};
use crate::{NODE_FD, process::jail, spawner};

/// The argument that makes the program the launcher.
pub const ARGUMENT: &str = "--launcher";

/// The argument that makes the program a spawner that stays in the host's network.
pub const OUTSIDE: &str = "--outside";

/// The argument that makes a spawner create jails of the reduced level.
pub const REDUCED: &str = "--reduced";

/// A spawner that lives.
struct Launched {
    pid: Pid,
    /// The socket whose other end the node holds; `None` once the node has closed it.
    life: Option<OwnedFd>,
}

struct Launcher {
    node: OwnedFd,
    programs: Programs,
    launched: Vec<Launched>,
}

/// Runs until the node is gone. Sandboxes may make the calls that `rules` allows.
///
/// # Errors
/// Returns an error if a system call fails, or if the node sends a message that is not an order.
pub fn run(rules: fn(jail::HostFeatures) -> Vec<Rule>) -> io::Result<()> {
    // A terminal's Ctrl-C is for the node.
    let _ = rustix::process::setsid();
    name_process(c"faasw-launcher");
    // SAFETY: the node starts this program with this descriptor, and nothing else in it
    // owns it.
    let node = unsafe { OwnedFd::from_raw_fd(NODE_FD) };
    close_from(programs::END);
    let programs = Programs::inherited()?;
    let ended = child_signal()?;
    let mut launcher = Launcher {
        node,
        programs,
        launched: Vec::new(),
    };
    loop {
        let (ordered, has_ended) = launcher.wait(&ended)?;
        if has_ended {
            drain_signal(&ended);
            launcher.reap();
        }
        if ordered {
            match receive(&launcher.node, RecvFlags::empty()) {
                Ok(mut packet) if packet.kind() == Some(Kind::Launch) => {
                    if let (Ok(order), [Some(socket), Some(life), ..]) =
                        (packet.message::<Launch>(), packet.take_fds())
                    {
                        launcher.launch(order, &socket, life, rules);
                    }
                }
                Ok(mut packet) if packet.kind() == Some(Kind::OpenNames) => {
                    if let [Some(socket), ..] = packet.take_fds() {
                        // If a file cannot be opened, or the node does not wait for it, the socket
                        // is closed.
                        let _ = hand_names_over(&socket);
                    }
                }
                Ok(_) => return Err(io::Error::other("the node ordered what is no order")),
                Err(FriError::Closed) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Opens the files that define how names are resolved (hosts(5), resolv.conf(5)), and sends them.
fn hand_names_over(socket: &OwnedFd) -> io::Result<()> {
    let open = |path: &CStr| {
        // With these flags the open does not block, whatever file is there.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let files = [open(c"/etc/hosts")?, open(c"/etc/resolv.conf")?];
    let [hosts, servers] = files.each_ref().map(|file| file.is_some().into());
    let fds: Vec<_> = files.iter().flatten().map(AsFd::as_fd).collect();
    let opened = NamesOpened { hosts, servers };
    send(socket, &opened, &fds, SendFlags::DONTWAIT).map_err(io::Error::other)
}

impl Launched {
    /// Kills the spawner if the node has sent a message. If the node has closed the socket, the
    /// spawner ends by itself and leaves nothing.
    fn handle_message(&mut self) {
        if let Some(life) = self.life.take()
            && receive(&life, RecvFlags::DONTWAIT).is_ok()
        {
            // The child is not reaped yet, so the number is still its own.
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            self.life = Some(life);
        }
    }
}

impl Launcher {
    /// Waits for an order or for a child's end, and returns which of them is there. Kills the
    /// spawners that the node has ordered to be killed.
    fn wait(&mut self, ended: &OwnedFd) -> io::Result<(bool, bool)> {
        let mut events = vec![
            PollFd::new(&self.node, PollFlags::IN),
            PollFd::new(ended, PollFlags::IN),
        ];
        let lives = self
            .launched
            .iter()
            .filter_map(|launched| launched.life.as_ref());
        events.extend(lives.map(|life| PollFd::new(life, PollFlags::IN)));
        match poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_events: Vec<bool> = events
            .iter()
            .map(|event| !event.revents().is_empty())
            .collect();
        let mut has_events = has_events.into_iter();
        let (ordered, has_ended) = (
            has_events.next() == Some(true),
            has_events.next() == Some(true),
        );
        for launched in &mut self.launched {
            if launched.life.is_some() && has_events.next() == Some(true) {
                launched.handle_message();
            }
        }
        Ok((ordered, has_ended))
    }

    /// Forks a spawner. If that fails, the node sees the spawner's sockets closed.
    fn launch(
        &mut self,
        order: Launch,
        socket: &OwnedFd,
        life: OwnedFd,
        rules: fn(jail::HostFeatures) -> Vec<Rule>,
    ) {
        // SAFETY: this process has one thread; the child has a copy of everything.
        match unsafe { libc::fork() } {
            0 => {
                let code = self.become_spawner(order, socket, rules);
                // The launcher's own clean-up must not run in the child.
                // SAFETY: ends this process without running anything.
                unsafe { libc::_exit(code) }
            }
            number => {
                if let Some(pid) = Pid::from_raw(number)
                    && number > 0
                {
                    let life = Some(life);
                    self.launched.push(Launched { pid, life });
                }
            }
        }
    }

    fn become_spawner(
        &self,
        Launch { network, level }: Launch,
        socket: &OwnedFd,
        rules: fn(jail::HostFeatures) -> Vec<Rule>,
    ) -> i32 {
        let node = (NODE_FD, socket.as_fd());
        for (number, fd) in [node].into_iter().chain(self.programs.descriptors()) {
            // These descriptors stay open on exec, which does no harm: a spawner does not execute
            // another program in its own process.
            // SAFETY: the previous owner of this number does not use it again in this process.
            if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
                return 1;
            }
        }
        // The spawner closes all other descriptors that it has inherited.
        let ended = match network {
            Network::Empty => spawner::run(level, rules),
            Network::Host => spawner::run_outside(level),
        };
        match ended {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("faasw spawner: {error}");
                1
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.launched.retain(|launched| launched.pid != pid);
        }
    }
}
