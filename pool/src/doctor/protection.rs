//! The host's means to protect sandboxes from each other, and the host from sandboxes.

use std::fs;

use faasw_jail::group::{CgroupLocation, CgroupVersion, Groups, Share, VM_OVERHEAD};
use faasw_jail::{ConfinementLevel, Obstacle};

use super::finding::{Finding, FindingState};
use crate::confinement::Confinement;

/// Examines everything on which jails of this kind and the memory limits depend.
pub fn findings(confinement: Confinement) -> Vec<Finding> {
    let (groups, sharing) = groups();
    let mut findings = vec![
        users(confinement),
        groups,
        sharing,
        memory(),
        threads(),
        merging(),
        swap(),
    ];
    findings.extend(speculation());
    findings.extend(namespaces(confinement));
    let loss = confinement.loss();
    findings.extend(loss.map(|loss| Finding::poor("confinement", loss)));
    findings
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn users(confinement: Confinement) -> Finding {
    let what = "users of jails";
    let level = confinement.level();
    if level == ConfinementLevel::Reduced && !faasw_jail::has_privilege(level) {
        return Finding::poor(
            what,
            "without root (or CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_KILL and CAP_SYS_CHROOT) \
             the processes of microVMs run as this user, with the host's files as their root: \
             system-call filters, and Landlock where there is any, keep them from those and \
             from each other",
        );
    }
    if faasw_jail::has_privilege(level) {
        Finding::good(what, "each microVM's process has its own user")
    } else {
        Finding::poor(
            what,
            "without root (or CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID and CAP_SETPCAP) the processes \
             of microVMs run as this user, kept apart by namespaces and system-call filters alone; \
             and what is made ahead takes processors from what is urgent",
        )
    }
}

/// Reports the obstacle to namespaces on this host, with its remedy. Without namespaces, only the
/// reduced level works.
fn namespaces(confinement: Confinement) -> Option<Finding> {
    let advice = Obstacle::predict().advice()?;
    let (state, then) = match confinement {
        Confinement::Reduced => (FindingState::Poor, "not needed for --confinement reduced"),
        Confinement::Jailed | Confinement::InProcess => (
            FindingState::Bad,
            "without them only --confinement reduced works",
        ),
    };
    let detail = format!("namespaces are not allowed ({then}): {advice}");
    Some(Finding::new("namespaces", state, detail))
}

/// Reports the control groups, and how processors are shared.
fn groups() -> (Finding, Finding) {
    let what = "control groups";
    let share = Share {
        memory: VM_OVERHEAD,
        processes: 1,
        weight: 100,
    };
    match CgroupLocation::find().and_then(|place| Groups::prepare(&place, share)) {
        Ok(groups) => {
            let sharing = sharing(groups.share_processors());
            groups.remove();
            let version = match groups.version() {
                CgroupVersion::One => 1,
                CgroupVersion::Two => 2,
            };
            let hot = match groups.check_background_support() {
                Ok(()) => "microVMs can poll for requests on idle processors (--poll)".into(),
                Err(why) => format!("microVMs cannot poll for requests (--poll): {why}"),
            };
            let detail = format!(
                "version {version}: the kernel holds each microVM's process to its memory; {hot}"
            );
            (Finding::good(what, detail), sharing)
        }
        Err(why) => {
            let detail = format!(
                "{why}: memory of microVMs is bounded by their size and this node's limits only, \
                 and it may be swapped out"
            );
            (Finding::poor(what, detail), sharing(false))
        }
    }
}

/// Reports whether processors are shared by function.
fn sharing(has_weights: bool) -> Finding {
    let what = "sharing of processors";
    let is_counted = !read("/proc/self/schedstat").is_empty();
    match (has_weights, is_counted) {
        (true, true) => Finding::good(
            what,
            "by function: the weight of each microVM's control group is divided by the number of \
             its function's busy microVMs",
        ),
        (true, false) => Finding::poor(
            what,
            "by microVM: a function with many busy requests gets more than others, because \
             /proc/PID/schedstat cannot be read (the kernel needs CONFIG_SCHED_INFO)",
        ),
        (false, _) => Finding::poor(
            what,
            "by process: a function with many busy requests gets more than others, because there \
             are no control groups with the controller cpu (run as root, or set Delegate=yes and \
             DelegateSubgroup= in the systemd unit)",
        ),
    }
}

fn memory() -> Finding {
    let mib = crate::memory::for_instances() >> 20;
    Finding::good(
        "memory",
        format!(
            "{mib} MiB for all microVMs together, unless --instance-memory says otherwise; the \
             rest is for the node, and the system ends microVMs before it"
        ),
    )
}

fn threads() -> Finding {
    let what = "simultaneous multithreading";
    match read("/sys/devices/system/cpu/smt/active").as_str() {
        "1" => Finding::poor(
            what,
            "on: microVMs of different functions may run on two threads of one core and learn of \
             each other through what these share (boot with nosmt, or give cores to nodes whole)",
        ),
        _ => Finding::good(what, "off: no two microVMs share a core"),
    }
}

fn merging() -> Finding {
    let what = "page merging";
    match read("/sys/kernel/mm/ksm/run").as_str() {
        "1" => Finding::poor(
            what,
            "KSM is on: faasw marks no page for it, but a program that starts the node can \
             (PR_SET_MEMORY_MERGE), and then contents can be told by timing",
        ),
        _ => Finding::good(what, "KSM is off"),
    }
}

fn swap() -> Finding {
    let what = "swap";
    match read("/proc/swaps").lines().count() {
        0 | 1 => Finding::good(what, "none: what functions hold stays in memory"),
        _ => Finding::poor(
            what,
            "there is some: control groups (version 2) keep the memory of microVMs out of it, but \
             not seeds, nor the requests and responses in mailboxes (encrypt it)",
        ),
    }
}

fn speculation() -> Option<Finding> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let mut open: Vec<String> = entries
        .flatten()
        .filter(|entry| {
            fs::read_to_string(entry.path()).is_ok_and(|text| text.starts_with("Vulnerable"))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    open.sort();
    Some(match open.as_slice() {
        [] => Finding::good(
            "speculation",
            "the kernel mitigates every weakness that it knows of in this CPU",
        ),
        open => {
            let names = open.join(", ");
            let detail = format!(
                "the kernel reports no mitigation for {names}: a function may be able to read \
                 others' memory"
            );
            Finding::poor("speculation", detail)
        }
    })
}
