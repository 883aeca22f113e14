//! The orders that make an instance and take it apart.

use faasw_abi::pages::{PageSet, Ranges};
use faasw_fri::Packet;
use faasw_fri::messages::{
    Failure, Fork, Forked, Origin, Prepared, Reset, Sealed, Specialise, Used, WarmReport,
};
use faasw_seedtree::limits::SET_PAGES_MAX;
use rustix::io::Errno;

use super::{End, Sandbox};
use crate::instance::fork::{ForkDescriptors, Instance};
use crate::instance::reset::ResetWork;
use crate::instance::seal;
use crate::instance::seed_memory::{CompareBuffers, SeedMemory};
use crate::instance::zygote::SpecialisedZygote;
use crate::memory::guest_memory;
use crate::memory::mapping::Mapping;
use crate::vm::clock;

impl Sandbox<'_> {
    /// Reports the pages that the instance has used; sets that the kernel does not report are
    /// empty.
    pub(super) fn survey(&self) -> Result<(), End> {
        let mut used = Used {
            written: Ranges::default(),
            changed: 0,
            read: Ranges::default(),
            code: Ranges::default(),
        };
        if let Some(instance) = &self.instance {
            let page_map = &self.page_map;
            let ram = instance.ram;
            let written = instance.written(page_map);
            used.written = Ranges::covering(&written);
            if let Some((source, _)) = instance.seed.as_deref() {
                used.changed = changed(source, ram, &written);
            }
            let read = page_map.all_read(ram).unwrap_or_default();
            used.read = Ranges::covering(&read);
            if let Some(code) = instance.code {
                let code = page_map.all_read(code).unwrap_or_default();
                used.code = Ranges::covering(&code);
            }
        }
        self.send(&used)
    }

    /// Hands over the state and pages of a seed, and ends.
    pub(super) fn seal(&mut self, mut packet: Packet) -> Result<(), End> {
        let state = self
            .vm
            .save()
            .map_err(|errno| self.fail_system(Failure::Run, errno))?;
        let mut sealed = Sealed {
            own: Ranges::default(),
            state,
        };
        let [layer, ..] = packet.take_fds();
        match &self.instance {
            Some(Instance {
                ram,
                seed: Some(seed),
                ..
            }) => {
                let Some(layer) = layer else {
                    return Err(self.fail(Failure::Message, 0));
                };
                let (source, _) = &**seed;
                let own = seal::write(&self.page_map, *ram, source, &layer)
                    .map_err(|errno| self.fail_system(Failure::Seal, errno))?;
                sealed.own = Ranges::covering(&own);
            }
            // All of it is in the root's own file, which cannot be sealed while it is mapped
            // anywhere. The end of this process is not enough: a process that inspects it in
            // `/proc` at that moment keeps its mappings for a little longer.
            Some(Instance { ram, .. }) => guest_memory::cut_off(*ram, 0)
                .map_err(|errno| self.fail_system(Failure::Seal, errno))?,
            None => {}
        }
        self.send(&sealed)
    }

    /// Resets the instance to the state before its request. A failure ends the sandbox. Returns the
    /// report if the instance was offered: the node reads it from the control page when it claims
    /// the instance, and receives it as a message if the guest polls in vain.
    pub(super) fn reset(&mut self, order: &Reset) -> Result<Option<WarmReport>, End> {
        let started = clock::monotonic();
        let page_faults = self.request_faults();
        let restored = self.bring_back(order.count_unused.is_yes())?;
        let warm = WarmReport {
            filled: restored.filled,
            outside: restored.outside,
            counted: order.count_unused,
            unused: restored.unused,
            exits: self.exits,
            page_faults,
            nanoseconds: clock::monotonic() - started,
            polled_nanoseconds: 0,
            is_offered: false.into(),
        };
        if self.offer(order, &warm)? {
            Ok(Some(warm))
        } else {
            self.send(&warm).map(|()| None)
        }
    }

    /// Resets the instance to exactly its seed's state.
    pub(super) fn bring_back(&mut self, counts_unused: bool) -> Result<ResetWork, End> {
        let Some(instance) = &mut self.instance else {
            return Err(self.fail(Failure::Message, 0));
        };
        instance.open_view(&mut self.vm);
        let restored = instance
            .reset(&mut self.vm, &self.page_map, counts_unused)
            .map_err(|failure| self.fail_reset(Failure::Reset, failure))?;
        self.faults_before = self.vm.page_faults();
        self.fork_nanoseconds = 0;
        Ok(restored)
    }

    /// Does the work that the functions of a seed have in common, in advance. A failure ends the
    /// sandbox.
    pub(super) fn specialise(&mut self, mut packet: Packet) -> Result<(), End> {
        let started = clock::monotonic();
        let order = packet
            .message::<Specialise>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let mut attached = packet.take_fds().into_iter().flatten();
        let Some(mailbox) = attached.next() else {
            return Err(self.fail(Failure::Message, 0));
        };
        let zygote = SpecialisedZygote::new(
            &mut self.vm,
            &self.page_map,
            &order.image,
            attached.collect(),
            mailbox,
        );
        let zygote = zygote.map_err(|failure| self.fail_reset(Failure::Specialise, failure))?;
        self.zygote = Some(Box::new(zygote));
        self.faults_before = self.vm.page_faults();
        self.send(&Prepared {
            nanoseconds: clock::monotonic() - started,
            jail_nanoseconds: 0,
            born_nanoseconds: 0,
        })
    }

    /// Makes the sandbox an instance.
    pub(super) fn fork(&mut self, mut packet: Packet) -> Result<(), End> {
        let started = clock::monotonic();
        let order = packet
            .message::<Fork>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let mut fds = packet.take_fds().into_iter().flatten();
        let mailbox = match order.origin {
            Origin::Zygote => None,
            Origin::Shared | Origin::Private => fds.next(),
        };
        let code = (order.code_bytes > 0).then(|| fds.next()).flatten();
        let attached = ForkDescriptors {
            mailbox,
            code,
            layers: fds.collect(),
        };
        let has_layers = order.origin == Origin::Zygote || !attached.layers.is_empty();
        if attached.code.is_some() != (order.code_bytes > 0) || !has_layers {
            return Err(self.fail(Failure::Message, 0));
        }
        let vm = &mut self.vm;
        let forked = match (order.origin, self.zygote.take()) {
            (Origin::Shared, None) => Instance::fork(vm, &order, attached, false),
            (Origin::Private, None) => Instance::fork(vm, &order, attached, true),
            (Origin::Zygote, Some(zygote)) => zygote.fork(vm, &order, attached),
            (Origin::Shared | Origin::Private, Some(_)) | (Origin::Zygote, None) => {
                Err(Errno::INVAL)
            }
        };
        let forked = forked.map_err(|errno| self.fail_system(Failure::Fork, errno))?;
        let ram = forked.ram.address();
        let code = forked.code.map_or(0, |code| code.address());
        self.instance = Some(forked);
        self.fork_nanoseconds = clock::monotonic() - started;
        if order.reports_addresses.is_yes() {
            self.send(&Forked { ram, code })
        } else {
            Ok(())
        }
    }
}

/// Returns how many of these pages differ from the seed's, among those that fit a set.
fn changed(source: &SeedMemory, ram: Mapping, written: &PageSet) -> u64 {
    let counted = written.first_ranges(SET_PAGES_MAX);
    let mut copies = CompareBuffers::default();
    let changed = |range| source.changed(ram, range, &mut copies).unwrap_or(0);
    counted.iter().map(changed).sum()
}
