//! Landlock's effect on this host's kernel. Each test restricts a thread of its own.

use std::fs::File;
use std::io::{Read as _, Result};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command};
use std::thread;

use super::*;

/// The interface that first has rules for TCP, that of Linux 6.7.
const WITH_TCP: i64 = 4;
/// The interface that first has scopes, that of Linux 6.12.
const WITH_SCOPES: i64 = 6;

/// Runs `attack` in a thread that Landlock restricts. Returns `None` if the kernel's interface is
/// older than `least`.
fn confined<T: Send + 'static>(
    least: i64,
    network: Network,
    attack: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if version() < least {
        eprintln!(
            "SKIPPED (Landlock's interface is {}, not {least})",
            version()
        );
        return None;
    }
    let thread = thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        forbid_all(network).unwrap();
        attack()
    });
    Some(thread.join().unwrap())
}

fn errno<T>(result: Result<T>) -> i32 {
    let error = result.err().expect("the kernel allows it");
    error.raw_os_error().unwrap()
}

#[test]
fn no_file_can_be_opened_and_an_open_one_stays_usable() {
    let mut open = File::open("/proc/self/status").unwrap();
    let Some((first, read)) = confined(1, Network::Host, move || {
        let read = open.read(&mut [0; 16]).unwrap();
        (errno(File::open("/proc/self/status")), read)
    }) else {
        return;
    };
    assert_eq!((first, read), (libc::EACCES, 16));
}

#[test]
fn no_connection_leaves_an_empty_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = move || TcpStream::connect(address);
    if let Some(refused) = confined(WITH_TCP, Network::Empty, move || errno(connect())) {
        assert_eq!(refused, libc::EACCES);
        let allowed = confined(WITH_TCP, Network::Host, move || connect().map(drop));
        allowed.unwrap().unwrap();
    }
}

#[test]
fn no_abstract_socket_outside_can_be_reached() {
    let name = format!("faasw-landlock-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let connect = move || errno(UnixStream::connect_addr(&address));
    if let Some(refused) = confined(WITH_SCOPES, Network::Host, connect) {
        assert_eq!(refused, libc::EPERM);
    }
}

/// A process that waits for its standard input to end.
struct Outsider(Child);

impl Outsider {
    fn start() -> Self {
        let mut command = Command::new("cat");
        Self(command.stdin(std::process::Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_process_outside_can_be_signalled() {
    let outsider = Outsider::start();
    let id = libc::pid_t::try_from(outsider.0.id()).unwrap();
    let kill = move || {
        // SAFETY: the signal goes to a child of this test, which exists until the test ends.
        match unsafe { libc::kill(id, libc::SIGTERM) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    if let Some(refused) = confined(WITH_SCOPES, Network::Host, move || errno(kill())) {
        assert_eq!(refused, libc::EPERM);
        kill().unwrap();
    }
}
