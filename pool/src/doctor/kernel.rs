//! The cost of this host's kernel and virtualisation, measured on the spot.

use std::io;
use std::time::Duration;

use faasw_sandbox::memory::search_time;
use faasw_sandbox::vm::{PageWalk, VmTemplate};
use kvm_ioctls::Kvm;

use super::finding::Finding;

/// An exit that takes longer than 8 us passes through another virtual machine, or comes from an
/// emulated CPU.
const NATIVE_EXIT_MAX: Duration = Duration::from_micros(8);

/// Measures the cost of requests and resets on this host.
pub fn findings() -> Vec<Finding> {
    let mut findings = match Kvm::new()
        .map_err(io::Error::from)
        .and_then(VmTemplate::new)
    {
        Ok(template) => vec![exits(&template), page_walk(template.page_walk())],
        // The finding about KVM itself states the reason.
        Err(_) => Vec::new(),
    };
    findings.push(private_pages());
    findings
}

fn micros(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}

fn exits(template: &VmTemplate) -> Finding {
    let what = "VM exits";
    let time = match template.exit_time() {
        Ok(time) => time,
        Err(error) => return Finding::poor(what, format!("guests could not be measured: {error}")),
    };
    let detail = format!(
        "a guest leaves its VM and is entered again in {}",
        micros(time)
    );
    if time <= NATIVE_EXIT_MAX {
        return Finding::good(what, detail);
    }
    let detail = format!(
        "{detail}, at least once for each request; 1 to 2 us are usual where KVM is not itself in \
         a virtual machine"
    );
    Finding::poor(what, detail)
}

fn page_walk(walk: PageWalk) -> Finding {
    let what = "page tables";
    match walk {
        PageWalk::Shadowed => Finding::poor(
            what,
            "KVM shadows guests' page tables in software: each page that a guest touches for the \
             first time costs a fault of some microseconds",
        ),
        PageWalk::Writing => Finding::good(
            what,
            "the hardware walks guests' page tables and makes their pages private: a reset fills \
             those again, too",
        ),
        PageWalk::Reading => Finding::good(
            what,
            "the hardware walks guests' page tables and leaves their pages shared",
        ),
    }
}

fn private_pages() -> Finding {
    let what = "private pages";
    let (has_scan, time) = match search_time() {
        Ok(measured) => measured,
        Err(errno) => {
            let detail = format!("the page map cannot be read, so nothing is reset: {errno}");
            return Finding::poor(what, detail);
        }
    };
    let detail = format!(
        "a reset that searches for an instance's private pages takes {} for that",
        micros(time)
    );
    if has_scan {
        Finding::good(what, detail)
    } else {
        let missing = "PAGEMAP_SCAN is missing (Linux 6.7 and later have it)";
        Finding::poor(what, format!("{missing}: {detail}"))
    }
}
