//! Making sandboxes, and specialising them for a seed that others descend from.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use faasw_fri::messages::{Prepared, Preset};
use faasw_fri::userfault::Faults;
use faasw_fri::{Kind, Packet};
use rustix::event::{EventfdFlags, eventfd};

use super::orders::image;
use super::told::{Parts, not_prepared, protocol};
use super::{Sandbox, receive_by};
use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sandboxes::confinement::Maker;
use crate::sandboxes::progress::Progress;
use crate::sandboxes::wall_clock::WallClock;
use crate::sandboxes::watch::watch;
use crate::snapshots::Template;

impl Sandbox {
    /// Makes a sandbox, whose guest's time of day is `wall_clock`'s, and waits until its VM exists.
    ///
    /// # Errors
    /// Returns an error if it cannot be made, or fails to make its VM.
    pub async fn make(maker: &Maker, wall_clock: WallClock) -> Result<Self, PlatformError> {
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
    pub async fn make_ahead(
        maker: &Maker,
        wall_clock: WallClock,
        template: Option<&Template>,
        mailbox: &Mailbox,
    ) -> Result<Result<Self, String>, PlatformError> {
        let mut sandbox = Self::spawn(maker, wall_clock, true).await?;
        if let Some(template) = template {
            // The sandbox receives the order when its VM exists.
            sandbox.order_preset(template, mailbox).await?;
        }
        sandbox.wait_made().await?;
        Ok(match template {
            Some(template) => sandbox.wait_preset(template).await?.map(|()| sandbox),
            None => Ok(sandbox),
        })
    }

    async fn spawn(
        maker: &Maker,
        wall_clock: WallClock,
        is_ahead: bool,
    ) -> Result<Self, PlatformError> {
        let system = |error| PlatformError::System {
            what: "a sandbox's descriptors could not be made",
            error,
        };
        let (ours, theirs) = faasw_fri::pair().map_err(system)?;
        let socket = watch(ours).map_err(protocol)?;
        let signalled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let signalled = signalled.map_err(system)?;
        let process = maker.sandbox(theirs, &signalled, is_ahead).await?;
        Ok(Self {
            process,
            socket,
            progress: Progress::new(signalled).map_err(protocol)?,
            wall_clock,
            image: None,
            parts: Parts::default(),
            faults: None,
            paged: None,
        })
    }

    /// Waits until the sandbox has made its VM and closed its jail.
    async fn wait_made(&mut self) -> Result<(), PlatformError> {
        let prepared = match self.born().await? {
            Some(packet) => told_ready(&packet)??,
            None => self.prepared().await??,
        };
        self.parts = Parts::of(self.process.birth(), &prepared);
        let Parts {
            group,
            fork,
            enter,
            vm,
            jail,
            ..
        } = self.parts;
        tracing::trace!(?group, ?fork, ?enter, ?vm, ?jail, "sandbox made");
        Ok(())
    }

    /// Receives the first message of a sandbox, unless that hands over its page faults. The sandbox
    /// has seen no tenant's data yet, so it may send a descriptor; later it may not.
    async fn born(&mut self) -> Result<Option<Packet>, PlatformError> {
        let mut packet = receive_by(&self.socket, &mut self.process, |socket, flags| {
            faasw_fri::receive(socket, flags)
        })
        .await?;
        if packet.kind() != Some(Kind::Born) {
            return Ok(Some(packet));
        }
        let [faults, ..] = packet.take_fds();
        self.faults = faults.map(|faults| Arc::new(Faults::from(faults)));
        if let Some(faults) = &self.faults {
            self.process.account().hold(faults.clone());
        }
        Ok(None)
    }

    /// Waits until the sandbox is ready for its next order; the inner error says why it will not
    /// be.
    async fn prepared(&mut self) -> Result<Result<Prepared, PlatformError>, PlatformError> {
        told_ready(&self.receive().await?)
    }

    /// Specialises the sandbox for a seed that others descend from, and runs its guest once, when
    /// nothing else wants to run. `mailbox` is its mailbox from then on. If it cannot be
    /// specialised, the inner error states the reason, and the sandbox has ended.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended, or sends another message.
    pub async fn preset(
        &mut self,
        template: &Template,
        mailbox: &Mailbox,
    ) -> Result<Result<(), String>, PlatformError> {
        self.order_preset(template, mailbox).await?;
        self.wait_preset(template).await
    }

    async fn order_preset(
        &mut self,
        template: &Template,
        mailbox: &Mailbox,
    ) -> Result<(), PlatformError> {
        let order = Box::new(Preset {
            image: image(&template.frozen, template.ram_bytes, &template.sets)?,
        });
        let layers = template.frozen.layers();
        let mut fds = vec![mailbox.as_fd()];
        fds.extend(layers.iter().map(|layer| layer.as_fd()));
        self.tell(&*order, &fds).await
    }

    async fn wait_preset(
        &mut self,
        template: &Template,
    ) -> Result<Result<(), String>, PlatformError> {
        let done = self.prepared().await?.map_err(|error| error.to_string());
        Ok(done.map(|prepared| {
            self.image = Some(template.parent());
            self.parts.preset = Duration::from_nanos(prepared.nanoseconds);
            tracing::trace!(took = ?self.parts.preset, "sandbox preset");
        }))
    }
}

/// Parses the message of a sandbox that is to be ready; the inner error says why it will not be.
fn told_ready(packet: &Packet) -> Result<Result<Prepared, PlatformError>, PlatformError> {
    match packet.kind() {
        Some(Kind::Failed) => Ok(Err(not_prepared(packet))),
        _ => packet.message().map(Ok).map_err(protocol),
    }
}
