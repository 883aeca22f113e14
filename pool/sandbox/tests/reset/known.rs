//! Resets that do not look for private pages: they find what the others find, whatever a guest
//! does, and are not believed for ever.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_sandbox::instance::reset::Trouble;
use faasw_sandbox::memory::guest_memory;
use rustix::mm::Advice;

use crate::machine::{self, KEPT, LAST_TABLE, Level, Machine, NUMBER, RAM, UNMAPPED};
use crate::preset::two_steps;
use crate::{DONE, private, private_pages, programs};

/// Resets until one does not look; the guest does nothing new meanwhile.
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
            assert_eq!((restored.let_go, private_pages(&machine)), (0, had));
            machine.assert_memory();
        }
        // A page more, and it is looked; the page stays, and is known then.
        assert_eq!(machine.run(20 << 20), DONE);
        assert!(machine.reset().looked);
        machine.assert_memory();
        settle(&mut machine);
        assert_eq!(machine.run(20 << 20), DONE);
        machine.reset();
        machine.assert_memory();
    }
}

/// A small generator of numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Every way that a guest has to a page, to pages of layers, of fresh memory and of tables, in
/// any order: after each the reset either looks or has known all of them.
pub fn no_way_to_a_private_page_goes_unseen() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut random = Random(seed);
    let source = machine::seed(programs::ways(), [0, 0]);
    // Two pages that translate, and were neither used nor written: the walk writes to the table.
    let entries = [17_u64 << 20, 18 << 20].map(|frame| (frame | 0b111).to_le_bytes());
    rustix::io::pwrite(&source.layers[1], &entries.concat(), LAST_TABLE + 8).unwrap();
    let mut machine = Machine::forked(Level::Ring3, source);
    let rounds = if machine::is_emulated() { 60 } else { 400 };
    let mut unlooked = 0;
    let mut ways = [0; programs::WAYS as usize];
    for round in 0..rounds {
        // Most do nothing new, so that something is known when one does.
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

/// A way, and a page that a guest may write to without being ended for it, as it may to the next.
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
        // Those that it usually writes.
        4 => pages(random, 9 << 20, (9 << 20) + 5 * PAGE),
        _ if programs::TRANSLATING.contains(&way) => 17 << 20,
        _ => UNMAPPED + PAGE,
    };
    (way, at)
}

/// Another thread's faults are not counted here: as if there were a way that nobody thought of.
pub fn a_page_that_came_unseen_ends_the_instance_in_time() {
    // A fault of the test's own has it looked for before: then it tells nothing.
    let told = (0..3).any(|_| a_page_that_came_unseen_is_found());
    assert!(told, "a fault of the test's own each time");
}

/// Whether it was found by a look that nothing had asked for.
fn a_page_that_came_unseen_is_found() -> bool {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    let other = 20 << 20;
    let address = machine.ram.from(other).unwrap().address() as usize;
    let (write, written) = (AtomicBool::new(false), AtomicBool::new(false));
    // It is there from the start: making it takes faults here.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(&write);
            let at: *mut u64 = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: a page of RAM, whose vCPU stands still.
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
                    assert_eq!(trouble, Trouble::Broken(other));
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

/// What `khugepaged` does when it comes by, done at once. Whether it could.
fn complete_large_page(machine: &Machine) -> bool {
    const MADV_COLLAPSE: i32 = 25;
    let at = machine.ram.from(KEPT).unwrap().address() as usize;
    let at: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: changes how memory of this VM is mapped, not what it has.
    unsafe { libc::madvise(at, LARGE_PAGE as usize, MADV_COLLAPSE) == 0 }
}

pub fn a_large_page_is_not_completed_round_what_is_known() {
    let source = machine::seed(programs::poke(), [0, 0]);
    let mut machine = Machine::forked_with(Level::Ring3, source, Advice::LinuxHugepage);
    assert_eq!(machine.run(NUMBER), DONE);
    // Before anything is known it may be.
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
        // Beside those that are kept.
        assert_eq!(machine.run(KEPT + (100 + round) * PAGE), DONE);
        assert!(machine.reset().looked);
        machine.assert_memory();
    }
}

/// Faults of this thread count whoever has them taken: this process, or KVM for a guest.
pub fn all_kinds_of_faults_are_counted() {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    settle(&mut machine);
    let before = machine.vm.fault_count().unwrap();
    assert_eq!(machine.vm.fault_count(), Some(before));
    // A page that this process does not have, and no guest touches.
    let file = machine::memory("page", 21 << 20 | PAGE);
    let page = machine::pages(21 << 20, 1);
    machine.ram.fill(file.as_fd(), page).unwrap();
    let by_hand = machine.vm.fault_count().unwrap();
    assert_ne!(by_hand, before);
    // One that it has, and KVM has not mapped.
    assert_eq!(machine.run(21 << 20), DONE);
    let by_kvm = machine.vm.fault_count().unwrap();
    assert_ne!(by_kvm, by_hand);
    // One that the system is asked for.
    let page = machine::pages(22 << 20, 1);
    guest_memory::make_private(machine.ram, &page.into());
    assert_ne!(machine.vm.fault_count(), Some(by_kvm));
}
