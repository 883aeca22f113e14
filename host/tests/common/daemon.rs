//! Programs of others that a test runs beside itself: whether they are here, where they listen, and
//! their end.

use std::{
    ffi::OsStr,
    net::TcpListener,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use super::time_limit;

/// How often another port is tried: somebody may have taken one since it was found free.
const PORTS: usize = 6;

/// Whether there is a program that answers this well.
pub fn is_there(program: impl AsRef<OsStr>, asked: &str) -> bool {
    let answer = Command::new(program).arg(asked).output();
    answer.is_ok_and(|answer| answer.status.success())
}

/// A port on which `run` says that something serves, if there is any.
pub fn on_a_port(run: impl FnMut(&u16) -> bool) -> Option<u16> {
    (0..PORTS).map(|_| free_port()).find(run)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A program that runs, or none; killed when dropped.
#[derive(Default)]
pub struct Daemon(Option<Child>);

impl Daemon {
    /// Runs one until `is_ready` says that it serves; `None` where it has ended, or took longer
    /// than so many seconds.
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
        // Another one may have answered on its port.
        (!daemon.has_ended()).then_some(daemon)
    }

    fn has_ended(&mut self) -> bool {
        let child = self.0.as_mut();
        child.is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Ends it as a power cut does, but for the system's memory.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended by itself.
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
