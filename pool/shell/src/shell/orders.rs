//! The orders that make an instance and take it apart.

use faasw_abi::memory_map::PAGE;
use faasw_fri::Packet;
use faasw_fri::messages::{
    Failure, Fork, FriExtent, OWN_MAX, PRESET, PRIVATE, Parked, Prepared, Preset as PresetOrder,
    Reset, SET_MAX, SET_PAGES_MAX, SHARED, Sealed, Used,
};
use faasw_seedtree::{Extent, coalesce};
use rustix::io::Errno;

use super::{End, Shell};
use crate::clock;
use crate::fork::{Attached, Instance};
use crate::guest_memory::Mapping;
use crate::preset::Preset;
use crate::seal;
use crate::source::Source;

impl Shell<'_> {
    /// Says what the instance has used; nothing where the system cannot tell.
    pub(super) fn survey(&self) -> Result<(), End> {
        let mut used = Used {
            written_count: 0,
            written: [FriExtent::default(); SET_MAX],
            changed: 0,
            read_count: 0,
            read: [FriExtent::default(); SET_MAX],
        };
        if let Some(instance) = &self.instance {
            let page_map = &self.page_map;
            let ram = instance.ram;
            let written: Vec<Extent> = instance
                .written(page_map)
                .iter()
                .map(|stretch| Extent {
                    start: stretch.start,
                    end: stretch.end,
                })
                .collect();
            used.written_count = put(&mut used.written, &written);
            if let Some((source, _)) = instance.seed.as_deref() {
                used.changed = changed(source, ram, &written);
            }
            let read = page_map.all_read(ram).unwrap_or_default();
            used.read_count = put(&mut used.read, &read);
        }
        self.tell(&used)
    }

    /// Hands over what a seed is made of, and ends.
    pub(super) fn seal(&mut self, mut packet: Packet) -> Result<(), End> {
        let state = self
            .vm
            .save()
            .map_err(|errno| self.fail_system(Failure::Run, errno))?;
        let mut sealed = Sealed {
            own_count: 0,
            own: [FriExtent::default(); OWN_MAX],
            state,
        };
        let [layer, ..] = packet.take_fds();
        let is_private = self
            .instance
            .as_ref()
            .is_some_and(|instance| instance.seed.is_some());
        if is_private {
            let (Some(instance), Some(layer)) = (&self.instance, layer) else {
                return Err(self.fail(Failure::Message, 0));
            };
            let own = seal::write(&self.page_map, instance.ram, &layer)
                .map_err(|errno| self.fail_system(Failure::Fork, errno))?;
            for (slot, extent) in sealed.own.iter_mut().zip(own) {
                *slot = extent;
                sealed.own_count += 1;
            }
        }
        self.tell(&sealed)
    }

    /// Becomes as it was before its request. Whatever fails ends the shell.
    pub(super) fn reset(&mut self, packet: &Packet) -> Result<(), End> {
        let order = packet
            .message::<Reset>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let started = clock::monotonic();
        let page_faults = self.request_faults();
        let Some(instance) = &mut self.instance else {
            return Err(self.fail(Failure::Message, 0));
        };
        instance.open_view(&mut self.vm);
        let restored = instance
            .reset(&mut self.vm, &self.page_map, order.count_unused != 0)
            .map_err(|trouble| self.fail_trouble(Failure::Reset, trouble))?;
        self.faults_before = self.vm.page_faults();
        self.fork_nanoseconds = 0;
        self.tell(&Parked {
            filled: restored.filled,
            let_go: restored.let_go,
            outside: restored.outside,
            counted: u64::from(order.count_unused != 0),
            unused: restored.unused,
            tables_changed: u64::from(restored.tables.have_changed()),
            exits: self.exits,
            page_faults,
            nanoseconds: clock::monotonic() - started,
        })
    }

    /// Does ahead what the functions of a seed have in common. Whatever fails ends the
    /// shell.
    pub(super) fn preset(&mut self, mut packet: Packet) -> Result<(), End> {
        let started = clock::monotonic();
        let order = packet
            .message::<PresetOrder>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let mut attached = packet.take_fds().into_iter().flatten();
        let Some(mailbox) = attached.next() else {
            return Err(self.fail(Failure::Message, 0));
        };
        let preset = Preset::new(
            &mut self.vm,
            &self.page_map,
            &order.image,
            attached.collect(),
            mailbox,
        );
        let preset = preset.map_err(|trouble| self.fail_trouble(Failure::Preset, trouble))?;
        self.preset = Some(Box::new(preset));
        self.faults_before = self.vm.page_faults();
        self.tell(&Prepared {
            nanoseconds: clock::monotonic() - started,
            cell_nanoseconds: 0,
            born_nanoseconds: 0,
        })
    }

    /// Becomes an instance.
    pub(super) fn fork(&mut self, mut packet: Packet) -> Result<(), End> {
        let started = clock::monotonic();
        let order = packet
            .message::<Fork>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let mut fds = packet.take_fds().into_iter().flatten();
        let mailbox = match order.origin {
            PRESET => None,
            _ => fds.next(),
        };
        let code = (order.code_bytes > 0).then(|| fds.next()).flatten();
        let attached = Attached {
            mailbox,
            code,
            layers: fds.collect(),
        };
        if attached.code.is_some() != (order.code_bytes > 0) || attached.layers.is_empty() {
            return Err(self.fail(Failure::Message, 0));
        }
        let vm = &mut self.vm;
        let forked = match (order.origin, self.preset.take()) {
            (SHARED, None) => Instance::fork(vm, &order, attached, false),
            (PRIVATE, None) => Instance::fork(vm, &order, attached, true),
            (PRESET, Some(preset)) => preset.fork(vm, &order, attached),
            _ => Err(Errno::INVAL),
        };
        self.instance = Some(forked.map_err(|errno| self.fail_system(Failure::Fork, errno))?);
        self.fork_nanoseconds = clock::monotonic() - started;
        Ok(())
    }
}

/// Puts a set where there is room for so many stretches, the nearest ones joined;
/// says how many there are then.
fn put(slots: &mut [FriExtent; SET_MAX], set: &[Extent]) -> u64 {
    let joined = coalesce(set, PAGE, SET_MAX);
    for (slot, extent) in slots.iter_mut().zip(&joined) {
        *slot = FriExtent {
            start: extent.start,
            end: extent.end,
        };
    }
    joined.len() as u64
}

/// How many pages of these stretches differ from the seed's, as far as they make a set.
fn changed(source: &Source, ram: Mapping, stretches: &[Extent]) -> u64 {
    let mut pages = 0;
    stretches
        .iter()
        .take_while(|stretch| {
            pages += stretch.bytes() / PAGE;
            pages <= SET_PAGES_MAX
        })
        .map(|stretch| {
            let stretch = FriExtent {
                start: stretch.start,
                end: stretch.end,
            };
            source.changed(ram, stretch).unwrap_or(0)
        })
        .sum()
}
