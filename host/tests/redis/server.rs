//! A Redis server of a test's own, in a folder of its own; killed when dropped.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use faasw::KeyValueServer;
use tempfile::TempDir;

use crate::common::time_limit;

/// The program, as Debian's redis-server has it.
const PROGRAM: &str = "redis-server";

/// Why there is no such server here, if there is none.
pub fn is_missing() -> Result<(), &'static str> {
    let asked = Command::new(PROGRAM).arg("--version").output();
    match asked {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err("no redis-server"),
    }
}

/// A server.
pub struct Server {
    pub folder: TempDir,
    pub port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// One that keeps what it acknowledges.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same with options of its command line beside.
    pub fn with(options: &[&str]) -> Self {
        let mut server = Self {
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
            options: options.iter().map(|&word| word.to_owned()).collect(),
            child: None,
        };
        // Somebody may have taken the port meanwhile.
        for _ in 0..5 {
            if server.try_run() {
                return server;
            }
            server.port = free_port();
        }
        panic!("redis-server does not start: {}", server.log());
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Adds options for when it is run next; the last of a kind holds.
    pub fn with_options(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|&word| word.to_owned()));
    }

    /// By its socket.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// By its port.
    pub fn tcp(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn at(&self) -> KeyValueServer {
        self.url().parse().unwrap()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Runs it, where it has left off.
    pub fn run(&mut self) {
        assert!(self.try_run(), "{}", self.log());
    }

    fn try_run(&mut self) -> bool {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let port = self.port.to_string();
        let mut command = Command::new(PROGRAM);
        command
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .args(["--dir", &path(self.folder.path())])
            .args(["--unixsocket", &path(&self.socket())])
            .args(["--logfile", &path(&self.log_file())])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let deadline = Instant::now() + time_limit(20);
        loop {
            // Whoever must log in is answered, too.
            if let Some(answer) = self.asked("PING")
                && !answer.contains("LOADING")
            {
                return true;
            }
            let child = self.child.as_mut().unwrap();
            if child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                self.kill();
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as a power cut does, but for the system's memory.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// The first lines of what it answers to these.
    fn asked_all<const N: usize>(&self, commands: [&str; N]) -> Option<[String; N]> {
        let stream = UnixStream::connect(self.socket()).ok()?;
        stream.set_read_timeout(Some(time_limit(10))).ok()?;
        let mut lines = commands.map(|_| String::new());
        let mut reader = BufReader::new(&stream);
        for (command, line) in commands.iter().zip(&mut lines) {
            let command = format!("{command}\r\n");
            (&stream).write_all(command.as_bytes()).ok()?;
            reader.read_line(line).ok()?;
        }
        let is_answered = lines.iter().all(|line| !line.is_empty());
        is_answered.then(|| lines.map(|line| line.trim().to_owned()))
    }

    fn asked(&self, command: &str) -> Option<String> {
        self.asked_all([command]).map(|[line]| line)
    }

    /// Has it do a command that it answers in a line.
    #[track_caller]
    pub fn tell(&self, command: &str) -> String {
        let answer = self.asked(command).unwrap();
        assert!(!answer.starts_with('-'), "{command}: {answer}");
        answer
    }
}

impl Server {
    /// The same where one has to log in.
    #[track_caller]
    pub fn tell_with_password(&self, password: &str, command: &str) -> String {
        let auth = format!("AUTH {password}");
        let [_, answer] = self.asked_all([&auth, command]).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
