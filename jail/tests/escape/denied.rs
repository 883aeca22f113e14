//! A process that must not make namespaces, as in a container with Docker's usual system-call
//! profile.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The calls that the profile denies a process without `CAP_SYS_ADMIN`, as far as jails could use
/// them.
const DENIED: [libc::c_long; 14] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
];

/// Every namespace that `clone` can make.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> BpfProgram {
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, TargetArch::x86_64);
    filter.unwrap().try_into().unwrap()
}

/// Returns the filters: the same calls fail with the same errors as with that profile.
pub fn filters() -> [BpfProgram; 2] {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.into_iter().map(|call| (call, Vec::new())).collect();
    let namespace = |flag: i32| {
        let bit = u64::from(flag.cast_unsigned());
        let operator = SeccompCmpOp::MaskedEq(bit);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, bit);
        SeccompRule::new(vec![condition.unwrap()]).unwrap()
    };
    rules.insert(libc::SYS_clone, NAMESPACES.map(namespace).into());
    // A filter cannot see that call's flags.
    let newer = [(libc::SYS_clone3, Vec::new())].into();
    [compile(rules, libc::EPERM), compile(newer, libc::ENOSYS)]
}

/// Denies namespaces to this process and all of its children from now on.
#[allow(dead_code, reason = "one suite installs them between fork and exec")]
pub fn deny_namespaces() {
    for filter in filters() {
        apply_filter(&filter).unwrap();
    }
}
