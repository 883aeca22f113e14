//! The orders that let an instance run, and the doorbells that its guest rings meanwhile.

use std::os::fd::OwnedFd;
use std::time::Duration;

use faasw_abi::boot::Activation;
use faasw_abi::doorbell::Doorbell;
use faasw_fri::messages::{Activate, Failure, Rang, Reset};
use faasw_fri::{FriError, Kind, Packet, receive};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{End, Sandbox};
use crate::memory::guest_memory;
use crate::memory::mapping::Mapping;
use crate::vm::Stop;
use crate::vm::clock;

/// The longest single wait of a guest, in nanoseconds: an hour. The guest waits again if it needs
/// longer, and the node's time limit holds meanwhile.
const WAIT_MAX: u64 = 3_600_000_000_000;

/// How long a sandbox whose instance was hot polls for the order to reset it: what the node needs
/// to read the answer, and twice that.
const LOOK: Duration = Duration::from_micros(100);

impl Sandbox<'_> {
    pub(super) fn activate(
        &mut self,
        order: &Activate,
        ram: Mapping,
        poll_ticks: u64,
    ) -> Result<(), End> {
        let mut entropy = [0; 32];
        // Without entropy no instance may run.
        fill_with_entropy(&mut entropy).map_err(|errno| self.fail_system(Failure::Run, errno))?;
        self.monotonic_nanoseconds = order.monotonic_nanoseconds;
        self.activated = clock::monotonic();
        // Computed from the epoch here, because the order took a moment to arrive.
        let wall = Duration::from_nanos(order.wall_epoch_nanoseconds)
            .saturating_add(Duration::from_nanos(self.activated));
        guest_memory::write_activation(
            ram,
            &Activation {
                instance: order.instance,
                entropy,
                wall_seconds: wall.as_secs(),
                wall_nanoseconds: u64::from(wall.subsec_nanos()),
                monotonic_nanoseconds: order.monotonic_nanoseconds,
                tsc_khz: self.template.tsc_khz(),
                poll_ticks,
            },
        );
        self.exits = 0;
        Ok(())
    }

    /// Runs the guest until it rings for the node. Returns the order to reset if it was there
    /// already and is still to be carried out.
    pub(super) fn run(&mut self) -> Result<Option<Reset>, End> {
        let stop = self
            .vm
            .run()
            .map_err(|errno| self.fail_system(Failure::Run, errno))?;
        self.go_on(stop, Duration::ZERO)
    }

    /// Continues like [`Sandbox::run`] after the guest has stopped. Polls the control page for
    /// `look` before the node has to send the order.
    pub(super) fn go_on(&mut self, mut stop: Stop, look: Duration) -> Result<Option<Reset>, End> {
        loop {
            self.exits += 1;
            match stop {
                Stop::Rang(value) if value == Doorbell::Wait as u32 => self.wait()?,
                Stop::Rang(value) if value == Doorbell::Populate as u32 => self.populate(),
                Stop::Rang(value) => {
                    let is_done = value == Doorbell::Done as u32;
                    if let Some(instance) = &mut self.instance {
                        instance.is_done = is_done;
                    }
                    let order = if is_done {
                        self.ordered_already(look)?
                    } else {
                        None
                    };
                    if order.is_none() {
                        self.send(&self.rang(value))?;
                    }
                    return Ok(order);
                }
                Stop::Shutdown => return Err(self.fail(Failure::Shutdown, 0)),
                Stop::Other(reason) => return Err(self.fail(Failure::Exit, u64::from(reason))),
            }
            stop = self
                .vm
                .run()
                .map_err(|errno| self.fail_system(Failure::Run, errno))?;
        }
    }

    /// Carries out an order to reset, and the orders that follow from hot waits.
    pub(super) fn settle(&mut self, mut ordered: Option<Reset>) -> Result<(), End> {
        while let Some(order) = ordered {
            let warm = self.reset(&order)?;
            ordered = match self.stay_hot(&order, warm)? {
                Some(stop) => self.go_on(stop, LOOK)?,
                None => None,
            };
        }
        Ok(())
    }

    /// Returns the order to reset if the node has given it already, on the control page or by a
    /// message. The node does so if it has learnt from the mailbox that the guest is done; then it
    /// does not wait for the ring.
    fn ordered_already(&self, look: Duration) -> Result<Option<Reset>, End> {
        if let Some(order) = self.look_for_order(look) {
            return Ok(Some(order));
        }
        match waiting_order(self.socket) {
            Ok(Some(packet)) => match packet.kind() {
                Some(Kind::Reset) => self.order(&packet).map(Some),
                kind => Err(self.fail(Failure::Message, kind.map_or(0, |kind| kind as u64))),
            },
            Ok(None) => Ok(None),
            Err(FriError::Closed) => Err(End::Dismissed),
            Err(_) => Err(self.fail(Failure::Message, 0)),
        }
    }

    /// Parses an order to reset that was sent.
    pub(super) fn order(&self, packet: &Packet) -> Result<Reset, End> {
        let order = packet.message::<Reset>();
        order.map_err(|_| self.fail(Failure::Message, 0))
    }

    fn rang(&self, value: u32) -> Rang {
        Rang {
            doorbell: u64::from(value),
            fork_nanoseconds: self.fork_nanoseconds,
            run_nanoseconds: clock::monotonic().saturating_sub(self.activated),
            exits: self.exits,
            page_faults: self.request_faults(),
        }
    }

    pub(super) fn request_faults(&self) -> u64 {
        self.vm.page_faults().saturating_sub(self.faults_before)
    }

    /// Prepares memory that the guest is about to write: private pages, and second-level tables if
    /// the host can fill those in advance. A range outside of RAM is ignored.
    fn populate(&self) {
        let Some(instance) = &self.instance else {
            return;
        };
        let wanted = instance.mailbox.populate_wanted();
        if !wanted.is_empty() && instance.ram.pages().holds(wanted) {
            guest_memory::make_private(instance.ram, &wanted.into());
            self.vm
                .prefault(wanted.start.address().get(), wanted.bytes());
        }
    }

    /// Sleeps for the guest until its time has come or the node wakes it. The socket is watched, so
    /// a node that goes away ends the wait as well.
    fn wait(&self) -> Result<(), End> {
        let wanted = self
            .instance
            .as_ref()
            .map_or(0, |instance| instance.mailbox.wait_wanted())
            .min(WAIT_MAX);
        let timeout = Timespec {
            tv_sec: (wanted / 1_000_000_000) as i64,
            tv_nsec: (wanted % 1_000_000_000) as i64,
        };
        let mut events = [PollFd::new(self.socket, PollFlags::IN)];
        match poll(&mut events, Some(&timeout)) {
            // If this is too early, the guest waits again.
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => match receive(self.socket, RecvFlags::empty()) {
                Ok(packet) if packet.kind() == Some(Kind::Wake) => Ok(()),
                Err(FriError::Closed) => Err(End::Dismissed),
                _ => Err(self.fail(Failure::Message, 0)),
            },
            Err(errno) => Err(self.fail_system(Failure::Run, errno)),
        }
    }
}

/// Returns the order that waits in a socket, if there is one. Orders to wake are discarded, however
/// many there are: they are for waits that are over.
fn waiting_order(socket: &OwnedFd) -> Result<Option<Packet>, FriError> {
    loop {
        match receive(socket, RecvFlags::DONTWAIT) {
            Ok(packet) if packet.kind() == Some(Kind::Wake) => {}
            Ok(packet) => return Ok(Some(packet)),
            Err(FriError::System(Errno::AGAIN)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Fills `out` from the kernel's random number generator.
fn fill_with_entropy(out: &mut [u8; 32]) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..)
        && !rest.is_empty()
    {
        match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_fri::messages::{Answer, Reset, Wake};
    use faasw_fri::send;
    use rustix::net::SendFlags;

    #[test]
    fn a_flood_of_wakes_takes_no_stack() {
        let (ours, theirs) = faasw_fri::pair().unwrap();
        // Root may have so many pending.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&ours, 16 << 20);
        let mut sent = 0;
        while send(&ours, &Wake { reserved: 0 }, &[], SendFlags::DONTWAIT).is_ok() {
            sent += 1;
        }
        assert!(sent > 100, "{sent}");
        // A small part of a process's stack.
        let asks = std::thread::Builder::new().stack_size(128 << 10);
        let asks = asks.spawn(move || {
            assert!(matches!(waiting_order(&theirs), Ok(None)));
            theirs
        });
        let theirs = asks.unwrap().join().unwrap();
        for count_unused in [Answer::No, Answer::Yes, Answer::No] {
            send(&ours, &Wake { reserved: 0 }, &[], SendFlags::DONTWAIT).unwrap();
            let order = Reset {
                count_unused,
                poll_nanoseconds: 0,
                wall_epoch_nanoseconds: 0,
            };
            send(&ours, &order, &[], SendFlags::DONTWAIT).unwrap();
            let packet = waiting_order(&theirs).unwrap().unwrap();
            assert_eq!(
                packet.message::<Reset>().unwrap().count_unused,
                count_unused
            );
        }
        drop(ours);
        assert!(matches!(waiting_order(&theirs), Err(FriError::Closed)));
    }
}
