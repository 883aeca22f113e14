//! What this host's kernel and virtualisation cost, in figures that are measured on the spot.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::Window;
use faasw_seedtree::limits::SET_MAX;
use faasw_shell::memory::arena::Arena;
use faasw_shell::memory::guest_memory;
use faasw_shell::memory::page_map::PageMap;
use faasw_shell::vm::{PageWalk, Template};
use kvm_ioctls::Kvm;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::finding::{Finding, State};

/// A guest's memory as the search for private pages is measured on: the default of functions.
const RAM: u64 = 128 << 20;
/// What a seed has of it, about as the seed of a small function.
const LAYER: u64 = 12 << 20;
/// Pages that an instance writes, about as one of a small function.
const WRITTEN: u64 = 40;

/// An exit that takes longer comes through another virtual machine, or from a CPU that is emulated.
const NATIVE_EXIT_MAX: Duration = Duration::from_micros(8);

/// Measures what requests and resets cost on this host.
pub fn findings() -> Vec<Finding> {
    let mut findings = match Kvm::new().map_err(io::Error::from).and_then(Template::new) {
        Ok(template) => vec![exits(&template), page_walk(template.page_walk())],
        // The finding about KVM itself says why.
        Err(_) => Vec::new(),
    };
    findings.push(private_pages());
    findings
}

fn micros(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}

fn exits(template: &Template) -> Finding {
    let (state, detail) = match template.exit_time() {
        Ok(time) if time <= NATIVE_EXIT_MAX => {
            let detail = format!(
                "a guest leaves its VM and is entered again in {}",
                micros(time)
            );
            (State::Good, detail)
        }
        Ok(time) => {
            let detail = format!(
                "a guest leaves its VM and is entered again in {}, at least once for each request; \
                 1 to 2 us are usual where KVM is not itself in a virtual machine",
                micros(time)
            );
            (State::Poor, detail)
        }
        Err(error) => (State::Poor, format!("no guest could be timed: {error}")),
    };
    Finding {
        what: "VM exits",
        state,
        detail,
    }
}

fn page_walk(walk: PageWalk) -> Finding {
    let (state, detail) = match walk {
        PageWalk::Shadowed => (
            State::Poor,
            "KVM shadows guests' page tables in software: each page that a guest touches for the \
             first time costs a fault of some microseconds",
        ),
        PageWalk::Writing => (
            State::Good,
            "the hardware walks guests' page tables and makes their pages private: a reset fills \
             those again, too",
        ),
        PageWalk::Reading => (
            State::Good,
            "the hardware walks guests' page tables and leaves their pages shared",
        ),
    };
    Finding {
        what: "page tables",
        state,
        detail: detail.to_owned(),
    }
}

fn private_pages() -> Finding {
    let (state, detail) = match time_search() {
        Ok((true, time)) => {
            let detail = format!(
                "a reset that looks for an instance's private pages finds them in {}",
                micros(time)
            );
            (State::Good, detail)
        }
        Ok((false, time)) => {
            let detail = format!(
                "PAGEMAP_SCAN is missing (Linux 6.7 and later have it): a reset that looks for an \
                 instance's private pages takes {} for that",
                micros(time)
            );
            (State::Poor, detail)
        }
        Err(errno) => {
            let detail = format!("the page map cannot be read, so nothing is reset: {errno}");
            (State::Poor, detail)
        }
    };
    Finding {
        what: "private pages",
        state,
        detail,
    }
}

/// Whether this kernel has `PAGEMAP_SCAN`, and how long it takes to find the private pages of an
/// instance of a small function: the median of some.
fn time_search() -> Result<(bool, Duration), Errno> {
    const ROUNDS: usize = 21;
    let layer: OwnedFd = rustix::fs::memfd_create("faasw-trial", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&layer, LAYER)?;
    let window = Window {
        range: PageRange::of_bytes(0, LAYER),
        layer: 0,
    };
    let mut arena = Arena::default();
    // SAFETY: no VM has this memory, and nothing uses it after this function.
    unsafe { arena.release_at_end() };
    let ram = guest_memory::private_ram(&mut arena, &[layer], RAM, &[window])?;
    let mut written = PageSet::new();
    for page in (0..WRITTEN).map(|index| index * LAYER / WRITTEN) {
        written.push(PageRange::of_bytes(page, page + PAGE));
    }
    guest_memory::make_private(ram, &written);
    let map = PageMap::open()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for mut rest in map.where_private(ram, &[window])?.iter() {
            while !rest.is_empty() {
                let mut ranges = [PageRange::default(); SET_MAX];
                let (_, next) = map.written(ram, rest, &mut ranges)?;
                if next <= rest.start {
                    return Err(Errno::IO);
                }
                rest.start = next;
            }
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
    Ok((map.scans(), median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_for_private_pages_is_timed() {
        let (_, time) = time_search().unwrap();
        assert!(time > Duration::ZERO);
    }
}
