//! Resets that do not search for private pages: they find the same pages as a search, whatever a
//! guest does, and are verified from time to time.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_sandbox::instance::reset::ResetFailure;
use faasw_sandbox::memory::guest_memory;
use rustix::mm::Advice;

use crate::machine::{self, KEPT, LAST_TABLE, Level, Machine, NUMBER, RAM, UNMAPPED};
use crate::zygote::two_steps;
use crate::{DONE, private, private_pages, programs};

/// Resets until a reset does not search; the guest does nothing new meanwhile.
fn settle(machine: &mut Machine) {
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        assert_eq!(machine.run(NUMBER), DONE);
        if !machine.reset().looked {
            return;
        }
    }
    panic!("{ROUNDS} resets have looked for private pages");
}

pub fn a_reset_that_can_find_nothing_new_does_not_look() {
    for mut machine in [
        Machine::new(Level::Ring3, programs::poke()),
        two_steps(programs::poke()),
    ] {
        settle(&mut machine);
        for _ in 0..10 {
            assert_eq!(machine.run(NUMBER), DONE);
            let had = private_pages(&machine);
            let restored = machine.reset();
            if restored.looked {
                // A fault of the test's own.
                continue;
            }
            assert_eq!(restored.filled, had);
            assert_eq!((restored.released, private_pages(&machine)), (0, had));
            machine.assert_memory();
        }
        // With one more page, the reset searches; the page stays, and is known afterwards.
        assert_eq!(machine.run(20 << 20), DONE);
        assert!(machine.reset().looked);
        machine.assert_memory();
        settle(&mut machine);
        assert_eq!(machine.run(20 << 20), DONE);
        machine.reset();
        machine.assert_memory();
    }
}

/// A small random number generator (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Uses every way in which a guest can access a page, on pages of layers, of fresh memory and of
/// tables, in random order: after each, the reset either searches or has known all private pages.
pub fn no_way_to_a_private_page_goes_unseen() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut random = Random(seed);
    let source = machine::seed(programs::ways(), [0, 0]);
    // Two pages that are mapped, and were neither read nor written: the walk writes to the table.
    let entries = [17_u64 << 20, 18 << 20].map(|frame| (frame | 0b111).to_le_bytes());
    rustix::io::pwrite(&source.layers[1], &entries.concat(), LAST_TABLE + 8).unwrap();
    let mut machine = Machine::forked(Level::Ring3, source);
    let rounds = if machine::is_emulated() { 60 } else { 400 };
    let mut unlooked = 0;
    let mut ways = [0; programs::WAYS as usize];
    for round in 0..rounds {
        // Most rounds do nothing new, so that pages are known when one does.
        let is_usual = random.below(3) != 0;
        let (way, at) = if is_usual {
            (1, 9 << 20)
        } else {
            attack(&mut random)
        };
        assert_eq!(machine.run(at | way), DONE, "way {way} to {at:#x}");
        let had = private(&machine);
        let restored = machine.reset();
        if !is_usual {
            ways[way as usize] += 1;
        }
        if !restored.looked {
            unlooked += 1;
            let (filled, count) = (restored.filled, had.count());
            assert_eq!(
                filled, count,
                "round {round}, way {way} to {at:#x}: {had:?}"
            );
        }
        if !is_usual || round % 10 == 0 {
            machine.assert_memory();
        }
    }
    println!("{unlooked} of {rounds} did not look; ways: {ways:?}");
    assert!(unlooked > rounds / 10, "{unlooked}");
}

/// Returns a way, and a page that a guest may write to without being ended for it. It may also
/// write to the next page.
fn attack(random: &mut Random) -> (u64, u64) {
    let way = random.below(programs::WAYS);
    let pages = |random: &mut Random, from: u64, to: u64| {
        let count = (to - from) / PAGE - 1;
        from + random.below(count) * PAGE
    };
    let at = match random.below(6) {
        // The parent's, the child's, and fresh memory.
        0 => pages(random, 10 << 20, 24 << 20),
        1 => pages(random, 24 << 20, 28 << 20),
        2 => pages(random, 32 << 20, 36 << 20),
        3 => pages(random, 44 << 20, RAM),
        // Pages that the guest usually writes.
        4 => pages(random, 9 << 20, (9 << 20) + 5 * PAGE),
        _ if programs::TRANSLATING.contains(&way) => 17 << 20,
        _ => UNMAPPED + PAGE,
    };
    (way, at)
}

/// Faults of another thread are not counted here, as if there were a way that was not foreseen.
pub fn a_page_that_came_unseen_ends_the_instance_in_time() {
    // A fault of the test's own can cause a search before; such an attempt proves nothing.
    let told = (0..3).any(|_| a_page_that_came_unseen_is_found());
    assert!(told, "a fault of the test's own each time");
}

/// Returns whether the page was found by a search that no fault had caused.
fn a_page_that_came_unseen_is_found() -> bool {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    let other = 20 << 20;
    let address = machine.ram.from(other).unwrap().address() as usize;
    let (write, written) = (AtomicBool::new(false), AtomicBool::new(false));
    // The thread starts first, because starting it takes faults here.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(&write);
            let at: *mut u64 = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: a page of RAM, whose vCPU does not run.
            unsafe { at.write_volatile(7) };
            written.store(true, Ordering::Release);
        });
        settle(&mut machine);
        write.store(true, Ordering::Release);
        wait_for(&written);
        for unlooked in 0..64 {
            assert_eq!(machine.run(NUMBER), DONE);
            match machine.reset_memory() {
                Ok(restored) if restored.looked => return false,
                Ok(restored) => machine.reset_vcpu(&restored).unwrap(),
                Err(trouble) => {
                    assert_eq!(trouble, ResetFailure::Broken(other));
                    println!("ended after {unlooked} resets");
                    return true;
                }
            }
        }
        panic!("it was not found");
    })
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Does at once what `khugepaged` does at some time. Returns whether that was possible.
fn complete_large_page(machine: &Machine) -> bool {
    const MADV_COLLAPSE: i32 = 25;
    let at = machine.ram.from(KEPT).unwrap().address() as usize;
    let at: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: changes how memory of this VM is mapped, not its contents.
    unsafe { libc::madvise(at, LARGE_PAGE as usize, MADV_COLLAPSE) == 0 }
}

pub fn a_large_page_is_not_completed_round_what_is_known() {
    let source = machine::seed(programs::poke(), [0, 0]);
    let mut machine = Machine::forked_with(Level::Ring3, source, Advice::LinuxHugepage);
    assert_eq!(machine.run(NUMBER), DONE);
    // Before any page is known, the large page may be completed.
    if !complete_large_page(&machine) {
        println!("there are no large pages here");
        return;
    }
    assert!(private_pages(&machine) > 512);
    assert!(machine.reset().looked);
    machine.assert_memory();
    for round in 0..5_u64 {
        settle(&mut machine);
        assert!(!complete_large_page(&machine), "round {round}");
        // Next to the pages that are kept.
        assert_eq!(machine.run(KEPT + (100 + round) * PAGE), DONE);
        assert!(machine.reset().looked);
        machine.assert_memory();
    }
}

/// Faults of this thread count, whether this process takes them, or KVM for a guest.
pub fn all_kinds_of_faults_are_counted() {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    settle(&mut machine);
    let before = machine.vm.fault_count().unwrap();
    assert_eq!(machine.vm.fault_count(), Some(before));
    // A page that this process does not have, and no guest accesses.
    let file = machine::memory("page", 21 << 20 | PAGE);
    let page = machine::pages(21 << 20, 1);
    machine.ram.fill(file.as_fd(), page).unwrap();
    let by_hand = machine.vm.fault_count().unwrap();
    assert_ne!(by_hand, before);
    // A page that this process has, and KVM has not mapped.
    assert_eq!(machine.run(21 << 20), DONE);
    let by_kvm = machine.vm.fault_count().unwrap();
    assert_ne!(by_kvm, by_hand);
    // A page that the kernel makes private by request.
    let page = machine::pages(22 << 20, 1);
    guest_memory::make_private(machine.ram, &page.into());
    assert_ne!(machine.vm.fault_count(), Some(by_kvm));
}
