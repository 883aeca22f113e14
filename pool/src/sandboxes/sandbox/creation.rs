//! Making sandboxes, and specialising them for a seed that others descend from.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use faasw_fri::messages::{Prepared, Specialise};
use faasw_fri::userfault::Faults;
use faasw_fri::{Kind, Packet};
use rustix::event::{EventfdFlags, eventfd};

use super::orders::image;
use super::reports::{SandboxCreationTimes, preparation_error, protocol_error};
use super::{Sandbox, receive_by};
use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sandboxes::progress_doorbell::ProgressDoorbell;
use crate::sandboxes::sandbox_maker::SandboxMaker;
use crate::sandboxes::wall_clock::WallClock;
use crate::sandboxes::watch::watch;
use crate::snapshots::ZygoteTemplate;

impl Sandbox {
    /// Makes a sandbox, whose guest's time of day is `wall_clock`'s, and waits until its VM exists.
    ///
    /// # Errors
    /// Returns an error if it cannot be made, or fails to make its VM.
    pub async fn make(maker: &SandboxMaker, wall_clock: WallClock) -> Result<Self, PlatformError> {
        let mut sandbox = Self::spawn(maker, wall_clock, false).await?;
        sandbox.wait_made().await?;
        Ok(sandbox)
    }

    /// Makes a sandbox when nothing else wants to run, and waits until its VM exists. With a
    /// template it is specialised, too. If that fails, the inner error states the reason, and the
    /// sandbox has ended.
    ///
    /// # Errors
    /// As [`Sandbox::make`].
    pub async fn make_in_background(
        maker: &SandboxMaker,
        wall_clock: WallClock,
        template: Option<&ZygoteTemplate>,
        mailbox: &Mailbox,
    ) -> Result<Result<Self, String>, PlatformError> {
        let mut sandbox = Self::spawn(maker, wall_clock, true).await?;
        if let Some(template) = template {
            // The sandbox receives the order when its VM exists.
            sandbox.order_specialisation(template, mailbox).await?;
        }
        sandbox.wait_made().await?;
        Ok(match template {
            Some(template) => sandbox.wait_specialised(template).await?.map(|()| sandbox),
            None => Ok(sandbox),
        })
    }

    async fn spawn(
        maker: &SandboxMaker,
        wall_clock: WallClock,
        is_ahead: bool,
    ) -> Result<Self, PlatformError> {
        let system = |error| PlatformError::System {
            what: "a sandbox's descriptors could not be made",
            error,
        };
        let (ours, theirs) = faasw_fri::pair().map_err(system)?;
        let socket = watch(ours).map_err(protocol_error)?;
        let signalled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let signalled = signalled.map_err(system)?;
        let process = maker.sandbox(theirs, &signalled, is_ahead).await?;
        Ok(Self {
            process,
            socket,
            progress: ProgressDoorbell::new(signalled).map_err(protocol_error)?,
            wall_clock,
            specialised_for: None,
            creation_times: SandboxCreationTimes::default(),
            faults: None,
            paged: None,
        })
    }

    /// Waits until the sandbox has made its VM and closed its jail.
    async fn wait_made(&mut self) -> Result<(), PlatformError> {
        let prepared = match self.receive_first_message().await? {
            Some(packet) => parse_ready(&packet)??,
            None => self.receive_prepared().await??,
        };
        self.creation_times = SandboxCreationTimes::of(self.process().creation_times(), &prepared);
        let SandboxCreationTimes {
            group,
            fork,
            enter,
            vm,
            jail,
            ..
        } = self.creation_times;
        tracing::trace!(?group, ?fork, ?enter, ?vm, ?jail, "sandbox made");
        Ok(())
    }

    /// Receives the first message of a sandbox, unless that hands over its page faults. The sandbox
    /// has seen no tenant's data yet, so it may send a descriptor; later it may not.
    async fn receive_first_message(&mut self) -> Result<Option<Packet>, PlatformError> {
        let mut packet = receive_by(&self.socket, &mut self.process, |socket, flags| {
            faasw_fri::receive(socket, flags)
        })
        .await?;
        if packet.kind() != Some(Kind::SandboxStarted) {
            return Ok(Some(packet));
        }
        let [faults, ..] = packet.take_fds();
        self.faults = faults.map(|faults| Arc::new(Faults::from(faults)));
        if let Some(faults) = &self.faults {
            self.process.account().hold_faults(faults.clone());
        }
        Ok(None)
    }

    /// Waits until the sandbox is ready for its next order; the inner error says why it will not
    /// be.
    async fn receive_prepared(&mut self) -> Result<Result<Prepared, PlatformError>, PlatformError> {
        parse_ready(&self.receive().await?)
    }

    /// Specialises the sandbox for a seed that others descend from, and runs its guest once, when
    /// nothing else wants to run. `mailbox` is its mailbox from then on. If it cannot be
    /// specialised, the inner error states the reason, and the sandbox has ended.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended, or sends another message.
    pub async fn specialise(
        &mut self,
        template: &ZygoteTemplate,
        mailbox: &Mailbox,
    ) -> Result<Result<(), String>, PlatformError> {
        self.order_specialisation(template, mailbox).await?;
        self.wait_specialised(template).await
    }

    async fn order_specialisation(
        &mut self,
        template: &ZygoteTemplate,
        mailbox: &Mailbox,
    ) -> Result<(), PlatformError> {
        let order = Box::new(Specialise {
            image: image(&template.frozen, template.ram_bytes, &template.sets)?,
        });
        let layers = template.frozen.layers();
        let mut fds = vec![mailbox.as_fd()];
        fds.extend(layers.iter().map(|layer| layer.as_fd()));
        self.send_order(&*order, &fds).await
    }

    async fn wait_specialised(
        &mut self,
        template: &ZygoteTemplate,
    ) -> Result<Result<(), String>, PlatformError> {
        let done = self
            .receive_prepared()
            .await?
            .map_err(|error| error.to_string());
        Ok(done.map(|prepared| {
            self.specialised_for = Some(template.parent());
            self.creation_times.specialising = Duration::from_nanos(prepared.nanoseconds);
            tracing::trace!(took = ?self.creation_times.specialising, "sandbox specialised");
        }))
    }
}

/// Parses the message of a sandbox that is to be ready; the inner error says why it will not be.
fn parse_ready(packet: &Packet) -> Result<Result<Prepared, PlatformError>, PlatformError> {
    match packet.kind() {
        Some(Kind::Failed) => Ok(Err(preparation_error(packet))),
        _ => packet.message().map(Ok).map_err(protocol_error),
    }
}
