//! Attacks with the system calls and descriptors of either process.

use std::ffi::c_long;
use std::ptr;

use faasw_jail::egress::NODE_FD;
use libc::{
    AF_INET, AF_NETLINK, AF_PACKET, AF_UNIX, EBADF, ECONNREFUSED, EISCONN, EMFILE, ENOMEM, EPERM,
    MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, SOCK_DGRAM, SOCK_RAW,
    SOCK_SEQPACKET, SOCK_STREAM,
};

use crate::escape::attack::{
    Attack, Filter, Kernel, Scene, call, filter_only, forbidden, not_asked, refused,
};

const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// Normal work, which must succeed in both rounds. Otherwise the attacks might fail for a reason
/// other than the jail.
pub const fn work(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    Attack {
        name,
        filter: Filter::Passes,
        kernel: Kernel::Allows,
        run,
    }
}

pub fn socket(family: i32, kind: i32) -> c_long {
    call!(SYS_socket, family, kind, 0)
}

/// Maps a page at any address.
fn map(protection: i32, flags: i32, file: i32) -> c_long {
    call!(SYS_mmap, 0, 4096, protection, flags, file, 0)
}

/// Sends a byte and a descriptor.
pub fn pass(to: i32, descriptor: i32) -> c_long {
    let byte = libc::iovec {
        iov_base: c"x".as_ptr().cast_mut().cast(),
        iov_len: 1,
    };
    let mut control = [0_u64; 3];
    // SAFETY: all zeroes is a message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw const byte).cast_mut();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: there is room for a header and a number, which is what is written.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header)
            .cast::<i32>()
            .write_unaligned(descriptor);
    }
    call!(SYS_sendmsg, to, &raw const message, libc::MSG_NOSIGNAL)
}

pub const BOTH: [Attack; 25] = [
    work("do-nothing", |_| 0),
    filter_only("make-events", |_| call!(SYS_epoll_create1, 0)),
    work("take-memory", |_| {
        map(READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1)
    }),
    work("draw-entropy", |_| {
        let mut byte = 0_u8;
        call!(SYS_getrandom, &raw mut byte, 1, 0)
    }),
    // A netlink socket, to the kernel's networks or to none.
    filter_only("ask-the-kernel-about-networks", |_| {
        socket(AF_NETLINK, SOCK_RAW)
    }),
    forbidden("listen-to-all-packets", &[EPERM], |_| {
        socket(AF_PACKET, SOCK_RAW)
    }),
    forbidden("make-packets", &[EPERM], |_| {
        call!(SYS_socket, AF_INET, SOCK_RAW, libc::IPPROTO_RAW)
    }),
    not_asked("reach-the-hypervisor", |_| {
        socket(libc::AF_VSOCK, SOCK_STREAM)
    }),
    not_asked("speak-by-several-paths", |_| {
        call!(SYS_socket, AF_INET, SOCK_STREAM, libc::IPPROTO_MPTCP)
    }),
    filter_only("make-a-pair-of-sockets", |_| {
        let mut pair = [0_i32; 2];
        call!(
            SYS_socketpair,
            AF_UNIX,
            SOCK_SEQPACKET,
            0,
            pair.as_mut_ptr()
        )
    }),
    // For datagrams to a process that listens at a name, as a log daemon does.
    filter_only("make-a-socket-of-datagrams", |_| {
        socket(AF_UNIX, SOCK_DGRAM)
    }),
    filter_only("become-another-descriptor", |_| call!(SYS_dup2, NODE_FD, 4)),
    filter_only("copy-a-descriptor", |_| {
        call!(SYS_fcntl, NODE_FD, libc::F_DUPFD, 0)
    }),
    filter_only("have-signals-sent", |_| {
        call!(SYS_fcntl, NODE_FD, libc::F_SETOWN, 0)
    }),
    filter_only("ask-who-the-node-is", |_| {
        let (mut told, mut length) = ([0_u32; 3], 12_u32);
        let told = told.as_mut_ptr();
        call!(
            SYS_getsockopt,
            NODE_FD,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            told,
            &raw mut length
        )
    }),
    filter_only("have-more-room", |_| {
        let bytes = 1_u32 << 20;
        call!(
            SYS_setsockopt,
            NODE_FD,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            &raw const bytes,
            4
        )
    }),
    filter_only("write-elsewhere", |_| {
        call!(SYS_write, NODE_FD, c"x".as_ptr(), 1)
    }),
    forbidden("find-another-descriptor", &[EBADF], |_| {
        let found =
            (5..4096).find(|fd| call!(SYS_fcntl, *fd, libc::F_GETLK) != -c_long::from(EBADF));
        found.map_or(-c_long::from(EBADF), c_long::from)
    }),
    forbidden("take-all-descriptors", &[EMFILE], |_| {
        for _ in 0..4096 {
            let made = call!(SYS_epoll_create1, 0);
            if made < 0 {
                return made;
            }
        }
        0
    }),
    refused("take-all-memory", &[ENOMEM], |_| {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        call!(SYS_mmap, 0, 1_u64 << 30, READ_WRITE, flags, -1, 0)
    }),
    filter_only("take-memory-to-run", |_| {
        map(READ_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1)
    }),
    filter_only("take-memory-that-is-shared", |_| {
        map(READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1)
    }),
    filter_only("have-all-memory-executable", |_| {
        call!(SYS_personality, libc::READ_IMPLIES_EXEC)
    }),
    not_asked("start-a-thread", |_| {
        call!(SYS_clone, libc::CLONE_VM | libc::SIGCHLD, 0, 0, 0, 0)
    }),
    not_asked("start-a-process-the-new-way", |_| {
        call!(SYS_clone3, ptr::null::<u8>(), 0)
    }),
];

/// Attacks with a worker's descriptors, or with those that it lacks.
pub const WORKERS: [Attack; 8] = [
    work("tell-the-node", |_| {
        call!(SYS_sendto, NODE_FD, c"x".as_ptr(), 1, 0, 0, 0)
    }),
    filter_only("make-a-socket-of-the-internet", |_| {
        socket(AF_INET, SOCK_STREAM)
    }),
    filter_only("ask-for-names", |_| socket(AF_INET, SOCK_DGRAM)),
    // The node shut down writing on the worker's end before the worker got it.
    refused("tell-the-connector", &[libc::EPIPE], |_| {
        let flags = libc::MSG_NOSIGNAL;
        call!(SYS_sendto, 4, c"x".as_ptr(), 1, flags, 0, 0)
    }),
    filter_only("pass-the-node-a-descriptor", |_| pass(NODE_FD, 0)),
    forbidden("send-somewhere-else", &[EISCONN], |_| {
        let address = [libc::AF_UNIX as u16, u16::from_ne_bytes(*b"\0x")];
        call!(
            SYS_sendto,
            NODE_FD,
            c"x".as_ptr(),
            1,
            0,
            address.as_ptr(),
            4
        )
    }),
    forbidden("connect-the-nodes-socket", &[ECONNREFUSED], |_| {
        let address = [libc::AF_UNIX as u16, u16::from_ne_bytes(*b"\0x")];
        call!(SYS_connect, NODE_FD, address.as_ptr(), 4)
    }),
    filter_only("take-descriptors-of-the-node", |_| {
        // SAFETY: all zeroes is a message without room.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        match call!(SYS_recvmsg, NODE_FD, &raw mut message, libc::MSG_DONTWAIT) {
            refused if refused == -c_long::from(libc::EAGAIN) => 0,
            done => done,
        }
    }),
];

/// Attacks on the network of a connector.
pub const CONNECTORS: [Attack; 5] = [
    work("ask-for-names", |_| socket(AF_INET, SOCK_DGRAM)),
    work("tell-the-node", |_| pass(NODE_FD, 0)),
    refused("connect-to-nobody", &[ECONNREFUSED], |_| {
        let socket = socket(AF_INET, SOCK_STREAM);
        // Port 1 of this machine.
        let address = [
            AF_INET as u16,
            1_u16.to_be(),
            127_u16.to_le(),
            1_u16.to_be(),
            0,
            0,
            0,
            0,
        ];
        call!(SYS_connect, socket, address.as_ptr(), 16)
    }),
    filter_only("listen", |_| {
        let socket = socket(AF_INET, SOCK_STREAM);
        call!(SYS_listen, socket, 1)
    }),
    filter_only("share-a-port", |_| {
        let (socket, yes) = (socket(AF_INET, SOCK_DGRAM), 1_u32);
        call!(
            SYS_setsockopt,
            socket,
            libc::SOL_SOCKET,
            libc::SO_REUSEPORT,
            &raw const yes,
            4
        )
    }),
];
