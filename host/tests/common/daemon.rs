//! External programs that a test runs: checks that they are installed, finds them a free port and
//! ends them.

use std::{
    ffi::OsStr,
    net::TcpListener,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use super::time_limit;

/// How many ports are tried: another program may have taken a port since it was found free.
const PORTS: usize = 6;

/// Returns whether the program exists and succeeds with the argument `asked`.
pub fn is_there(program: impl AsRef<OsStr>, asked: &str) -> bool {
    let answer = Command::new(program).arg(asked).output();
    answer.is_ok_and(|answer| answer.status.success())
}

/// Returns the first free port for which `run` returns true, if there is one.
pub fn on_a_port(run: impl FnMut(&u16) -> bool) -> Option<u16> {
    (0..PORTS).map(|_| free_port()).find(run)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A running program, or none. It is killed when dropped.
#[derive(Default)]
pub struct Daemon(Option<Child>);

impl Daemon {
    /// Starts the program and waits until `is_ready` returns true. Returns `None` if the program
    /// ends, or if it takes longer than `seconds`.
    pub fn run(
        command: &mut Command,
        seconds: u64,
        mut is_ready: impl FnMut() -> bool,
    ) -> Option<Self> {
        let mut daemon = Self(Some(command.spawn().unwrap()));
        let deadline = Instant::now() + time_limit(seconds);
        while !is_ready() {
            if daemon.has_ended() || Instant::now() > deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // A different program may have answered on the port.
        (!daemon.has_ended()).then_some(daemon)
    }

    fn has_ended(&mut self) -> bool {
        let child = self.0.as_mut();
        child.is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Kills the program as a power cut does, except that the system's memory survives.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            // The program may have ended by itself.
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.0.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
