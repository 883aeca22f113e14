//! The other process of the round trip, which is another process of this program.

use std::{
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

use super::vm::EmptyVm;
use crate::client::TIMEOUT;

/// A message, with as many bytes as a node's order to a sandbox.
const MESSAGE: [u8; 64] = [0; 64];

/// How the other process is started.
#[derive(clap::Args)]
pub struct PartnerArguments {
    /// Run an empty guest before each answer
    #[arg(long)]
    vm: bool,
}

/// Runs as the other process: answers each message on standard input, which is the socket, until
/// its peer is gone.
///
/// # Errors
/// Returns an error if the socket fails, or if KVM does.
pub fn serve(arguments: &PartnerArguments) -> Result<()> {
    let socket = std::io::stdin();
    let mut vm = arguments.vm.then(EmptyVm::new).transpose()?;
    let mut message = [0; MESSAGE.len()];
    loop {
        let (_, length) = recv(&socket, &mut message[..], RecvFlags::empty())?;
        if length == 0 {
            return Ok(());
        }
        if let Some(vm) = &mut vm {
            vm.run()?;
        }
        send(&socket, &MESSAGE, SendFlags::NOSIGNAL)?;
    }
}

/// The other process and the socket to it. Dropping the value ends the process.
pub struct Partner {
    socket: Option<OwnedFd>,
    epoll: OwnedFd,
    child: Child,
}

impl Partner {
    /// Starts the process, with a VM or without.
    ///
    /// # Errors
    /// Returns an error if the sockets or the process cannot be created.
    pub fn start(vm: bool) -> Result<Self> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &socket,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("floor-partner").args(vm.then_some("--vm"));
        let child = command
            .stdin(Stdio::from(theirs))
            .spawn()
            .context("cannot start the other process")?;
        Ok(Self {
            socket: Some(socket),
            epoll,
            child,
        })
    }

    /// Sends a message and waits for the answer, as a node waits for its sandboxes.
    ///
    /// # Errors
    /// Returns an error if the other process has ended or does not answer within [`TIMEOUT`].
    pub fn round_trip(&mut self) -> Result<()> {
        let socket = self.socket.as_ref().context("no socket")?.as_fd();
        send(socket, &MESSAGE, SendFlags::NOSIGNAL)?;
        let timeout = Timespec::try_from(TIMEOUT)?;
        let mut events = Vec::with_capacity(1);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Err(Errno::INTR) => {}
                other => {
                    ensure!(other? > 0, "the other process does not answer");
                    break;
                }
            }
        }
        let mut message = [0; MESSAGE.len()];
        let (_, length) = recv(socket, &mut message[..], RecvFlags::empty())?;
        ensure!(length > 0, "the other process ended");
        Ok(())
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // The process ends when its peer is gone; if it hangs, it is killed.
        drop(self.socket.take());
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
