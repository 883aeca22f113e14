//! The proof of the reset: a guest changes everything that it can reach, and afterwards VM and
//! memory are compared with the seed, bit for bit.
//!
//! | what | how it is covered |
//! | --- | --- |
//! | memory, mailbox | every byte compared; on any host |
//! | memory if private pages are not searched for | the same, after every way that a guest has to a page |
//! | general registers, flags, segments, control registers | KVM's structures compared, and reported by the next run; any host |
//! | x87, SSE, MXCSR, AVX | the same |
//! | AVX-512, and all other components of this host's XCR0 | reported by the next run, if a guest reaches them (`kvm-pvm`); elsewhere its own XCR0 excludes them |
//! | PKRU | reported by the next run, if a guest reaches it (`kvm-pvm` with protection keys on), whether KVM keeps it (Intel, observed) or not; the sandbox restores it, which is tested on all hosts with keys; elsewhere CR4 excludes it |
//! | debug registers, control registers set in ring 0 | the instance is refused; any host |
//! | XCR0 | the instance is refused; not in the emulated machine, whose CPU lets `xsetbv` through |
//! | MSRs | writing one ends the guest; any host |
//! | stale translations | nested page tables and shadow tables (the emulated machine has both) |
//!
//! Not compared: the time-stamp counter, which runs, and CR2, which is restored.
//!
//! Without `/dev/kvm` every test here prints a message and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod known;
mod machine;
mod programs;
mod zygote;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use faasw_abi::memory_map::{HOST_TABLES_END, PAGE, PML4, TEXT};
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_sandbox::instance::reset::{PageTableState, ResetFailure};
use faasw_sandbox::instance::seed_memory::CompareBuffers;
use faasw_sandbox::memory::page_map::PageMap;
use faasw_sandbox::vm::VmTemplate;
use faasw_sandbox::vm::state::{Change, StateError};
use kvm_ioctls::Kvm;
use libtest_mimic::{Arguments, Trial};

use known::{
    a_large_page_is_not_completed_round_what_is_known,
    a_page_that_came_unseen_ends_the_instance_in_time,
    a_reset_that_can_find_nothing_new_does_not_look, all_kinds_of_faults_are_counted,
    no_way_to_a_private_page_goes_unseen,
};
use machine::{Level, Machine, NUMBER, has_avx, pages};
use zygote::{
    a_fork_in_two_steps_is_a_fork, a_fork_two_steps_down_the_tree_is_a_fork,
    a_seed_that_does_not_descend_is_refused, a_specialised_zygote_takes_fewer_faults,
    memory_that_a_function_does_not_have_cannot_be_used, nothing_of_the_run_ahead_is_left,
    translations_are_the_childs, what_was_done_ahead_goes_back,
};

const DONE: Option<u32> = Some(3);

/// Returns the pages that are private to this process. Entries of the page map do not distinguish
/// the page of zeroes from them, but no other page of a VM's memory is mapped more than once.
fn private(machine: &Machine) -> PageSet {
    const EXCLUSIVE_OR_SWAPPED: u64 = 1 << 56 | 1 << 62;
    let map = PageMap::open().unwrap();
    let found = map.all_written(machine.ram).unwrap();
    if map.scans() {
        return found;
    }
    let entries = File::open("/proc/self/pagemap").unwrap();
    let first = machine.ram.address() / PAGE;
    let is_private = |page: &Page| {
        let mut entry = [0; 8];
        let at = (first + u64::from(page.number())) * 8;
        entries.read_exact_at(&mut entry, at).unwrap();
        u64::from_ne_bytes(entry) & EXCLUSIVE_OR_SWAPPED != 0
    };
    let pages = found.iter().flat_map(PageRange::pages);
    pages.filter(is_private).map(PageRange::one).collect()
}

fn private_pages(machine: &Machine) -> u64 {
    private(machine).count()
}

fn a_guest_that_writes_everything_leaves_nothing() {
    let mut machine = Machine::new(Level::Ring3, programs::everything());
    let wanted = machine.state;
    let mut told = Vec::new();
    for round in 0..3 {
        assert_eq!(machine.run(round), DONE);
        told.push(machine.output()[..2048].to_vec());
        assert!(private_pages(&machine) > 10_000);
        let restored = machine.reset();
        assert!(restored.released > 10_000, "{restored:?}");
        machine.assert_memory();
        // The pages that the guest usually writes stay private, and a few spare pages.
        assert!(private_pages(&machine) < 100, "{:?}", private(&machine));
        let now = machine.vm.save().unwrap();
        assert_eq!(now.regs, wanted.regs);
        assert_eq!(now.sregs, wanted.sregs);
        assert_eq!(now.xcrs, wanted.xcrs);
        assert_eq!(now.xsave, wanted.xsave);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
    // The dump is real: the stack pointer is in it.
    let at_56 = u64::from_le_bytes(told[0][56..64].try_into().unwrap());
    assert_eq!(at_56, faasw_abi::memory_map::STACK_TOP);
}

fn the_upper_halves_of_vector_registers_are_cleared() {
    let mut cases = vec![("AVX-512", programs::wider())];
    if has_avx() {
        cases.push(("AVX", programs::wide()));
    }
    for (name, program) in cases {
        let mut machine = Machine::new(Level::Ring3, program);
        if machine.run(1).is_none() {
            assert_eq!(name, "AVX-512", "{name} should be there");
            println!("{name} is out of a guest's reach here");
            continue;
        }
        let first = machine.output();
        assert_eq!(machine.run(2), DONE);
        assert_ne!(first, machine.output(), "{name}: the program does nothing");
        machine.reset();
        assert_eq!(machine.run(3), DONE);
        assert_eq!(first, machine.output(), "{name}");
    }
}

fn every_component_of_xcr0_is_as_before() {
    let mut machine = Machine::new(Level::Ring3, programs::components());
    assert_eq!(machine.run(1), DONE);
    let first = machine.output();
    let reached = u32::from_le_bytes(first[4088..4092].try_into().unwrap());
    println!("components that a guest reaches here: {reached:#b}");
    assert_eq!(reached & 0b11, 0b11);
    for run in 2..5 {
        // Without a reset in between, its changes are there.
        assert_eq!(machine.run(run), DONE);
        assert_ne!(
            first[..3000],
            machine.output()[..3000],
            "the program does nothing"
        );
        machine.reset();
        assert_eq!(machine.run(run), DONE);
        assert!(first == machine.output(), "run {run} found what was left");
        machine.reset();
        assert_eq!(machine.run(run), DONE);
        assert!(first == machine.output(), "run {run} found what was left");
    }
}

fn protection_keys_are_as_before() {
    let mut machine = Machine::new(Level::Ring3, programs::keys());
    if machine.run(1).is_none() {
        println!("PKRU is out of a guest's reach here");
        return;
    }
    let first = machine.output();
    for run in 2..5 {
        machine.reset();
        assert_eq!(machine.run(run), DONE);
        assert_eq!(first[..16], machine.output()[..16]);
    }
}

/// If a guest cannot reach PKRU, this thread changes it as such a guest would.
fn protection_keys_are_put_back_when_a_vcpu_has_stopped() {
    const OSPKE: u32 = 1 << 4;
    if std::arch::x86_64::__cpuid_count(7, 0).ecx & OSPKE == 0 {
        println!("this system has no protection keys on");
        return;
    }
    let mut machine = Machine::new(Level::Ring3, programs::identity());
    let own = keys::read();
    let left = own ^ 0b11 << 30;
    keys::write(left);
    assert_eq!(keys::read(), left, "the test can fail");
    assert_eq!(machine.run(0), DONE);
    assert_eq!(keys::read(), own, "after a run");
}

mod keys {
    use std::arch::asm;

    pub fn read() -> u32 {
        let pkru;
        // SAFETY: only called if the system has protection keys on.
        unsafe { asm!("rdpkru", in("ecx") 0, out("eax") pkru, out("edx") _) };
        pkru
    }

    pub fn write(pkru: u32) {
        // SAFETY: as above; key 0, which all memory has, stays as it was.
        unsafe { asm!("wrpkru", in("ecx") 0, in("eax") pkru, in("edx") 0) };
    }
}

fn supported_features_are_reported_to_the_guest() {
    let mut machine = Machine::new(Level::Ring3, programs::identity());
    let mut ask = |leaf: u32, index: u32| -> [u32; 4] {
        assert_eq!(machine.run(u64::from(leaf) | u64::from(index) << 32), DONE);
        let told = machine.output();
        [0, 4, 8, 12].map(|at| u32::from_le_bytes(told[at..at + 4].try_into().unwrap()))
    };
    // Family and model, and the first letters of the CPU's name: the table has neither.
    const WHICH_CPU: [u32; 2] = [1, 0x8000_0002];
    let told = WHICH_CPU.map(|leaf| ask(leaf, 0)[0]);
    if told == WHICH_CPU.map(|leaf| std::arch::x86_64::__cpuid(leaf).eax) {
        println!("the CPU answers a guest itself here");
        return;
    }
    assert_eq!(told, [0, 0]);
    if VmTemplate::new(Kvm::new().unwrap())
        .unwrap()
        .reports_more_features()
    {
        println!("KVM tells a guest more than its table here");
        return;
    }
    let [last, ..] = ask(0, 0);
    assert_eq!(last, 0xd);
    let [_, _, _, features] = ask(1, 0);
    assert_ne!(features, 0, "the table is there");
    let [_, sets, hidden, more] = ask(7, 0);
    assert_eq!(
        (sets & !(1 << 3 | 1 << 5 | 1 << 8), hidden, more),
        (0, 0, 0)
    );
    let [states, ..] = ask(0xd, 0);
    assert_eq!(states & !0b111, 0);
    assert_eq!(ask(0xd, 1), [0; 4]);
    assert_eq!(ask(0x8000_000a, 0), [0; 4], "nested virtualisation");
}

fn a_page_that_was_mapped_is_gone() {
    let mut machine = Machine::new(Level::Ring3, programs::stray());
    // Without a reset in between the page is there, so the test can fail.
    assert_eq!(machine.run(1), DONE);
    assert_eq!(machine.run(2), DONE);
    let restored = machine.reset();
    machine.assert_memory();
    println!("{:?}", restored.tables);
    assert_eq!(machine.run(2), None, "a stale translation was used");
}

/// If the zone for tables was full at the freeze, tables may be anywhere.
fn a_page_that_was_mapped_by_a_table_beyond_the_zone_is_gone() {
    let source = machine::seed_with_a_full_zone(programs::stray_beyond());
    let mut machine = Machine::forked(Level::Ring3, source);
    for _ in 0..2 {
        assert_eq!(machine.run(1), DONE);
        assert_eq!(machine.run(2), DONE, "it is there without a reset");
        let restored = machine.reset();
        machine.assert_memory();
        assert_eq!(
            restored.tables == PageTableState::Many,
            machine.vm.page_walk().has_shadows(),
            "{:?}",
            restored.tables
        );
    }
    assert_eq!(machine.run(2), None, "a stale translation was used");
}

fn a_page_that_is_mapped_elsewhere_is_the_new_one() {
    let mut machine = Machine::new(Level::Ring3, programs::mapper());
    for megabyte in [17_u64, 42, 18, 30, 17] {
        assert_eq!(machine.run(megabyte), DONE);
        let told = u64::from_le_bytes(machine.output()[..8].try_into().unwrap());
        assert_eq!(told, megabyte << 20);
        machine.reset();
        machine.assert_memory();
    }
}

fn state_that_only_ring_0_can_change_is_refused() {
    let mut cases = vec![
        (
            "a debug register",
            programs::debug_register(),
            Change::Debug,
        ),
        ("CR4", programs::control_register(), Change::Control),
        ("CR3", programs::root(), Change::Control),
        ("the IDT", programs::descriptor_table(), Change::Control),
    ];
    if has_avx() && !machine::is_emulated() {
        cases.push(("XCR0", programs::extended_register(), Change::Extended));
    }
    for (name, program, expected) in cases {
        let mut machine = Machine::new(Level::Ring0, program);
        assert_eq!(machine.run(1), DONE, "{name}");
        let restored = machine.reset_memory().unwrap();
        let refused = machine.reset_vcpu(&restored);
        assert_eq!(refused, Err(StateError::Changed(expected)), "{name}");
    }
}

fn every_entry_to_ring_0_leaves_a_trace() {
    let mut machine = Machine::new(Level::Ring3, programs::trip());
    assert_eq!(machine.run(1), DONE);
    let restored = machine.reset_memory().unwrap();
    assert!(restored.ring_0_entered);
    let refused = machine.reset_vcpu(&restored);
    assert_eq!(refused, Err(StateError::Changed(Change::Debug)));
    // A root that was written may have led to other gates and another stack, even if its contents
    // are the same again.
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(PML4), DONE);
    let restored = machine.reset_memory().unwrap();
    assert!(restored.ring_0_entered);
    let all_go = restored.tables == PageTableState::Many;
    let walk = machine.vm.page_walk();
    assert_eq!(all_go, walk.has_shadows(), "{:?}", restored.tables);
    machine.reset_vcpu(&restored).unwrap();
    machine.assert_memory();
    // A guest that did neither is known not to have entered ring 0, unless walks write to tables.
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(NUMBER), DONE);
    let restored = machine.reset_memory().unwrap();
    assert_eq!(restored.ring_0_entered, walk.writes_tables());
}

fn segments_that_ring_3_changes_are_refused_or_brought_back() {
    for (name, program) in [
        ("selectors", programs::selectors()),
        ("bases", programs::bases()),
    ] {
        let mut machine = Machine::new(Level::Ring3, program);
        if machine.run(1).is_none() {
            println!("{name} are out of a guest's reach here");
            continue;
        }
        let first = machine.output();
        let restored = machine.reset_memory().unwrap();
        match machine.reset_vcpu(&restored) {
            Err(refused) => assert_eq!(refused, StateError::Changed(Change::Control), "{name}"),
            Ok(()) => {
                println!("{name} are brought back");
                assert_eq!(machine.run(2), DONE, "{name}");
                assert_eq!(first[..16], machine.output()[..16], "{name}");
            }
        }
    }
}

/// The observation of the trial guest holds for the tables of this guest, and matches the
/// parameters of KVM's modules, if they have them.
fn the_way_that_addresses_are_translated_is_observed() {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(NUMBER), DONE);
    let walk = machine.vm.page_walk();
    let tables = PageRange::of_bytes(PML4, HOST_TABLES_END);
    let are_private = !private(&machine).intersection(&tables.into()).is_empty();
    assert_eq!(are_private, walk.writes_tables(), "{walk:?}");
    let is_on = |parameter: &str| {
        let path = format!("/sys/module/{parameter}");
        let value = std::fs::read_to_string(path).ok()?;
        Some(["Y", "1"].contains(&value.trim()))
    };
    let nested = is_on("kvm_amd/parameters/npt").or(is_on("kvm_intel/parameters/ept"));
    println!("{walk:?}; the module's parameter: {nested:?}");
    if let Some(nested) = nested {
        assert_eq!(walk.has_shadows(), !nested);
    }
    let is_eptad = is_on("kvm_intel/parameters/eptad");
    if nested == Some(true) {
        assert_eq!(walk.writes_tables(), is_eptad.unwrap_or(true));
    }
}

fn no_msr_can_be_written() {
    for (name, index) in [
        ("IA32_TIME_STAMP_COUNTER", 0x10_u64),
        ("IA32_TSC_ADJUST", 0x3b),
        ("IA32_SPEC_CTRL", 0x48),
        ("IA32_SYSENTER_CS", 0x174),
        ("IA32_DEBUGCTL", 0x1d9),
        ("an MTRR", 0x200),
        ("IA32_PAT", 0x277),
        ("a machine-check bank", 0x402),
        ("IA32_XSS", 0xda0),
        ("KVM's clock", 0x4b56_4d01),
        ("EFER", 0xc000_0080),
        ("STAR", 0xc000_0081),
        ("FS_BASE", 0xc000_0100),
        ("KERNEL_GS_BASE", 0xc000_0102),
        ("TSC_AUX", 0xc000_0103),
    ] {
        let mut machine = Machine::new(Level::Ring0, programs::model_specific());
        assert_eq!(machine.run(index), None, "{name} was written");
    }
}

fn a_guest_that_writes_text_or_the_way_to_ring_0_is_broken() {
    let text = TEXT + PAGE;
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(text), DONE);
    assert_eq!(
        machine.reset_memory().err(),
        Some(ResetFailure::Broken(text))
    );
    let directories = PML4 + PAGE;
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(directories), DONE);
    let result = machine.reset_memory();
    if machine.vm.page_walk().writes_tables() {
        assert!(result.is_ok());
    } else {
        assert_eq!(result.err(), Some(ResetFailure::Broken(directories)));
    }
}

fn pages_beyond_the_write_set_are_counted_and_let_go() {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(50 << 20), DONE);
    let before = private_pages(&machine);
    let restored = machine.reset();
    assert!(restored.outside >= 1, "{restored:?}");
    assert!(before >= private_pages(&machine));
    machine.assert_memory();
    // In the write set: private before it was accessed, and afterwards.
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    assert_eq!(machine.run(NUMBER), DONE);
    let usual = machine.reset();
    assert!(usual.outside < restored.outside, "{usual:?} {restored:?}");
}

fn unused_pages_of_the_write_set_are_counted() {
    let mut machine = Machine::new(Level::Ring3, programs::writer());
    let all = machine.source.write_set.count();
    let mut copies = CompareBuffers::default();
    for count in [4, 1, 3, 2, 4] {
        assert_eq!(machine.run(count), DONE);
        // Every run uses the page with the number.
        let used = count + 1;
        let mut changed = |range| machine.source.changed(machine.ram, range, &mut copies);
        let written = [pages(NUMBER, 1), pages(9 << 20, 4), pages(36 << 20, 4)]
            .map(|range| changed(range).unwrap());
        assert_eq!(written, [1, count, 0]);
        let restored = machine.reset();
        assert_eq!(restored.unused, all - used, "{restored:?}");
        assert!(restored.filled >= all);
        machine.assert_memory();
        // Over all windows and the gaps between them.
        let everything = PageRange::of_bytes(0, machine::RAM);
        let differ = machine.source.changed(machine.ram, everything, &mut copies);
        assert_eq!(differ.unwrap(), 0);
    }
}

fn prefilled_pages_take_no_faults() {
    const PAGES: u64 = 64;
    let faults = |machine: &mut Machine, number: u64| {
        let before = machine.vm.page_faults();
        assert_eq!(machine.run(number), DONE);
        machine.vm.page_faults() - before
    };
    let mut machine = Machine::new(Level::Ring3, programs::reader());
    let template = VmTemplate::new(Kvm::new().unwrap()).unwrap();
    if !template.can_prefault() {
        println!("KVM_PRE_FAULT_MEMORY is not offered here");
        return;
    }
    // Brings in the pages that every run accesses.
    faults(&mut machine, 1);
    let private = private_pages(&machine);
    machine.vm.prefault(40 << 20, PAGES * PAGE);
    assert_eq!(private_pages(&machine), private, "a page lost its sharing");
    assert_eq!(faults(&mut machine, PAGES), 0, "reads after prefill");
    assert_eq!(private_pages(&machine), private);
    // Of twice as many pages, half are not filled in, so the count is meaningful.
    assert!(faults(&mut machine, 2 * PAGES) > 0);

    let mut machine = Machine::new(Level::Ring3, programs::writer());
    faults(&mut machine, 1);
    machine.reset();
    // Private since the fork, like the write set, and now also mapped.
    machine.vm.prefault(9 << 20, 4 * PAGE);
    assert_eq!(faults(&mut machine, 4), 0, "writes after prefill");
    machine.reset();
    assert_eq!(faults(&mut machine, 4), 0, "writes after a reset");
    assert!(faults(&mut machine, PAGES) > 0);
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let skip = kvm_ioctls::Kvm::new().is_err();
    if skip {
        eprintln!("WITHOUT KVM: the tests of this file are ignored.");
    }
    macro_rules! trials {
        ($($name:ident),* $(,)?) => {
            vec![$(
                Trial::test(stringify!($name), || { $name(); Ok(()) }).with_ignored_flag(skip)
            ),*]
        };
    }
    let mut trials = trials![
        a_guest_that_writes_everything_leaves_nothing,
        the_upper_halves_of_vector_registers_are_cleared,
        every_component_of_xcr0_is_as_before,
        protection_keys_are_as_before,
        protection_keys_are_put_back_when_a_vcpu_has_stopped,
        supported_features_are_reported_to_the_guest,
        a_page_that_was_mapped_is_gone,
        a_page_that_was_mapped_by_a_table_beyond_the_zone_is_gone,
        a_page_that_is_mapped_elsewhere_is_the_new_one,
        state_that_only_ring_0_can_change_is_refused,
        every_entry_to_ring_0_leaves_a_trace,
        segments_that_ring_3_changes_are_refused_or_brought_back,
        the_way_that_addresses_are_translated_is_observed,
        no_msr_can_be_written,
        a_guest_that_writes_text_or_the_way_to_ring_0_is_broken,
        pages_beyond_the_write_set_are_counted_and_let_go,
        unused_pages_of_the_write_set_are_counted,
        prefilled_pages_take_no_faults,
        a_reset_that_can_find_nothing_new_does_not_look,
        no_way_to_a_private_page_goes_unseen,
        a_page_that_came_unseen_ends_the_instance_in_time,
        a_large_page_is_not_completed_round_what_is_known,
        all_kinds_of_faults_are_counted,
        a_fork_in_two_steps_is_a_fork,
        a_fork_two_steps_down_the_tree_is_a_fork,
        nothing_of_the_run_ahead_is_left,
        what_was_done_ahead_goes_back,
        a_specialised_zygote_takes_fewer_faults,
        translations_are_the_childs,
        memory_that_a_function_does_not_have_cannot_be_used,
        a_seed_that_does_not_descend_is_refused,
    ];
    macro_rules! without_scan {
        ($($name:ident),* $(,)?) => {
            [$(
                Trial::test(concat!("without_scan::", stringify!($name)), || {
                    machine::WITHOUT_SCAN.store(true, Ordering::Relaxed);
                    let outcome = std::panic::catch_unwind($name);
                    machine::WITHOUT_SCAN.store(false, Ordering::Relaxed);
                    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    Ok(())
                })
                .with_ignored_flag(skip)
            ),*]
        };
    }
    if PageMap::open().is_ok_and(|map| map.scans()) {
        trials.extend(without_scan![
            a_guest_that_writes_everything_leaves_nothing,
            a_page_that_was_mapped_is_gone,
            pages_beyond_the_write_set_are_counted_and_let_go,
            a_reset_that_can_find_nothing_new_does_not_look,
            no_way_to_a_private_page_goes_unseen,
            a_page_that_came_unseen_ends_the_instance_in_time,
            what_was_done_ahead_goes_back,
        ]);
    }
    libtest_mimic::run(&arguments, trials).exit();
}
