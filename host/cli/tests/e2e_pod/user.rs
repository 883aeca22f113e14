//! A pod in a cluster that trusts no workload: as a user without privileges, in a container with
//! the runtime's seccomp filter.

use std::{collections::BTreeMap, fs, io, os::unix::process::CommandExt as _};

use crate::e2e::{
    pod::{HELLO, Pod, as_user, words},
    process::{faasw, get},
};

fn status(pid: u32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(field).collect()
}

pub fn an_unprivileged_user_serves_on_a_read_only_file_system() {
    let (pod, _) = Pod::start(as_user(&words(HELLO, &["--drain-delay", "0"])));
    let of = status(pod.node.child.id());
    assert!(of["Uid"].starts_with("1000\t1000\t1000\t1000"), "{of:?}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(of[set], "0000000000000000", "{set}");
    }
    assert_eq!(of["NoNewPrivs"], "1");
    assert_eq!(get(pod.address, "/").body, "hello from wat\n");
    assert_eq!(get(pod.health, "/readyz").status, 200);
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

/// Installs a filter like the default one of containers without `CAP_SYS_ADMIN`: namespaces are
/// forbidden.
fn default_filter() -> io::Result<()> {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const HAS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const NAMESPACES: u32 = 0x7e02_0000;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let failing = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    let mut filter = [line(RETURN, 0, 0, ALLOW); 16];
    filter[0] = line(LOAD, 0, 0, 0);
    let refused = [
        (libc::SYS_unshare, libc::EPERM),
        (libc::SYS_setns, libc::EPERM),
        (libc::SYS_mount, libc::EPERM),
        (libc::SYS_clone3, libc::ENOSYS),
    ];
    for (at, (call, errno)) in (1..).step_by(2).zip(refused) {
        filter[at] = line(EQUAL, 0, 1, call as u32);
        filter[at + 1] = line(RETURN, 0, 0, failing(errno));
    }
    filter[9] = line(EQUAL, 0, 3, libc::SYS_clone as u32);
    // The low half of the call's first argument.
    filter[10] = line(LOAD, 0, 0, 16);
    filter[11] = line(HAS, 0, 1, NAMESPACES);
    filter[12] = line(RETURN, 0, 0, failing(libc::EPERM));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: both calls concern this process only, and the program outlives the second.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Isolation is never weaker than requested: the pod does not start, and the error names the
/// remedy.
pub fn a_runtime_that_forbids_namespaces_is_reported() {
    let mut command = faasw(&words(HELLO, &[]));
    // SAFETY: between fork and exec only prctl is called.
    unsafe { command.pre_exec(default_filter) };
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("namespaces") && said.contains("Localhost"),
        "{said}"
    );
}
