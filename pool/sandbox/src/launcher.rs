//! The launcher: starts spawners for a node that has given up what that takes.
//!
//! The node starts it first of all, before it confines itself, since filters, lost
//! privileges and the like pass to whatever a process makes. It is this same program, so
//! that a spawner is a fork of it. An order brings one end of a socket pair, which the
//! launcher holds for as long as the spawner lives, so that the node learns of its end,
//! whatever ended it. What the node says over it is that the spawner is to be killed.
//!
//! The other order has it open the two files that say how this host resolves names, which change
//! under a node that runs for long, and which one that has confined itself cannot open any more. It
//! reads neither.
//!
//! It ends with the node. Spawners do not end with it: they end when the node lets go of
//! their own sockets, in their own time.

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

/// What has the program be the launcher.
pub const ARGUMENT: &str = "--launcher";

/// What has the program be a spawner that stays in the host's network.
pub const OUTSIDE: &str = "--outside";

/// Has a spawner make jails of the reduced level.
pub const REDUCED: &str = "--reduced";

/// A spawner that lives.
struct Launched {
    pid: Pid,
    /// Whose other end the node holds; none once it has been killed, or let go of.
    life: Option<OwnedFd>,
}

struct Launcher {
    node: OwnedFd,
    programs: Programs,
    launched: Vec<Launched>,
}

/// Runs until the node is gone. Sandboxes may do what `rules` says.
///
/// # Errors
/// The system's, or when the node says what makes no sense.
pub fn run(rules: fn(jail::Host) -> Vec<Rule>) -> io::Result<()> {
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
                        // Where one cannot be opened, or nobody waits for it, the socket is closed.
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

/// Opens what says how names are resolved (hosts(5), resolv.conf(5)), and hands it over.
fn hand_names_over(socket: &OwnedFd) -> io::Result<()> {
    let open = |path: &CStr| {
        // Whatever has been put there, nobody waits for it.
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
    /// Something was said of it, or its node is gone: then it ends by itself, and leaves
    /// nothing.
    fn hear(&mut self) {
        if let Some(life) = self.life.take()
            && receive(&life, RecvFlags::DONTWAIT).is_ok()
        {
            // Not reaped yet, so the number is still this child's.
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            self.life = Some(life);
        }
    }
}

impl Launcher {
    /// Waits for an order, or for a child's end: says which there is. Kills the spawners
    /// that it is told to.
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
        let came: Vec<bool> = events
            .iter()
            .map(|event| !event.revents().is_empty())
            .collect();
        let mut came = came.into_iter();
        let (ordered, has_ended) = (came.next() == Some(true), came.next() == Some(true));
        for launched in &mut self.launched {
            if launched.life.is_some() && came.next() == Some(true) {
                launched.hear();
            }
        }
        Ok((ordered, has_ended))
    }

    /// Forks a spawner. Where that fails the node sees its sockets closed.
    fn launch(
        &mut self,
        order: Launch,
        socket: &OwnedFd,
        life: OwnedFd,
        rules: fn(jail::Host) -> Vec<Rule>,
    ) {
        // SAFETY: this process has one thread; the child has a copy of everything.
        match unsafe { libc::fork() } {
            0 => {
                let code = self.become_spawner(order, socket, rules);
                // The launcher's own clean-up is not the child's to do.
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
        rules: fn(jail::Host) -> Vec<Rule>,
    ) -> i32 {
        let node = (NODE_FD, socket.as_fd());
        for (number, fd) in [node].into_iter().chain(self.programs.descriptors()) {
            // A copy, where it is in its place already, stays open on exec; spawners
            // execute nothing themselves.
            // SAFETY: what had this number is not used again in this process.
            if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
                return 1;
            }
        }
        // It closes all others that it has inherited.
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
