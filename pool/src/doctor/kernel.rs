//! The cost of this host's kernel and virtualisation, measured on the spot.

use std::io;
use std::time::Duration;

use faasw_sandbox::memory::search_time;
use faasw_sandbox::vm::{PageWalk, Template};
use kvm_ioctls::Kvm;

use super::finding::{Finding, FindingState};

/// An exit that takes longer than 8 us passes through another virtual machine, or comes from an
/// emulated CPU.
const NATIVE_EXIT_MAX: Duration = Duration::from_micros(8);

/// Measures the cost of requests and resets on this host.
pub fn findings() -> Vec<Finding> {
    let mut findings = match Kvm::new().map_err(io::Error::from).and_then(Template::new) {
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

fn exits(template: &Template) -> Finding {
    let (state, detail) = match template.exit_time() {
        Ok(time) if time <= NATIVE_EXIT_MAX => {
            let detail = format!(
                "a guest leaves its VM and is entered again in {}",
                micros(time)
            );
            (FindingState::Good, detail)
        }
        Ok(time) => {
            let detail = format!(
                "a guest leaves its VM and is entered again in {}, at least once for each request; \
                 1 to 2 us are usual where KVM is not itself in a virtual machine",
                micros(time)
            );
            (FindingState::Poor, detail)
        }
        Err(error) => (
            FindingState::Poor,
            format!("guests could not be measured: {error}"),
        ),
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
            FindingState::Poor,
            "KVM shadows guests' page tables in software: each page that a guest touches for the \
             first time costs a fault of some microseconds",
        ),
        PageWalk::Writing => (
            FindingState::Good,
            "the hardware walks guests' page tables and makes their pages private: a reset fills \
             those again, too",
        ),
        PageWalk::Reading => (
            FindingState::Good,
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
    let (state, detail) = match search_time() {
        Ok((true, time)) => {
            let detail = format!(
                "a reset that searches for an instance's private pages takes {} for that",
                micros(time)
            );
            (FindingState::Good, detail)
        }
        Ok((false, time)) => {
            let detail = format!(
                "PAGEMAP_SCAN is missing (Linux 6.7 and later have it): a reset that searches for \
                 an instance's private pages takes {} for that",
                micros(time)
            );
            (FindingState::Poor, detail)
        }
        Err(errno) => {
            let detail = format!("the page map cannot be read, so nothing is reset: {errno}");
            (FindingState::Poor, detail)
        }
    };
    Finding {
        what: "private pages",
        state,
        detail,
    }
}
