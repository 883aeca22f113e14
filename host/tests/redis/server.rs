//! A test's own Redis server, in a folder of its own. It is killed when dropped.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use faasw::KeyValueServer;
use tempfile::TempDir;

use crate::common::{
    daemon::{Daemon, is_there, on_a_port},
    give_up,
};

/// The program's name in Debian's package redis-server.
const PROGRAM: &str = "redis-server";

/// Returns an error with the reason if there is no such server here.
pub fn is_missing() -> Result<(), &'static str> {
    is_there(PROGRAM, "--version")
        .then_some(())
        .ok_or("no redis-server")
}

/// A running server.
pub struct Server {
    pub folder: TempDir,
    pub port: u16,
    options: Vec<String>,
    daemon: Daemon,
}

impl Server {
    /// Starts a server that keeps the data that it acknowledges.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts such a server with additional command-line options.
    pub fn with(options: &[&str]) -> Self {
        let mut server = Self {
            folder: tempfile::tempdir().unwrap(),
            port: 0,
            options: options.iter().map(|&word| word.to_owned()).collect(),
            daemon: Daemon::default(),
        };
        let port = on_a_port(|port| {
            server.port = *port;
            server.try_run()
        });
        assert!(
            port.is_some(),
            "redis-server does not start: {}",
            server.log()
        );
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Adds options for the next run. The last one of a kind holds.
    pub fn with_options(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|&word| word.to_owned()));
    }

    /// Returns the URL of its socket.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the URL of its port.
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

    /// Starts the server on the data that it has.
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
        let is_ready = || {
            // A server that requires a login refuses commands before it, and so does not show that
            // it still loads its data.
            let mut options = self.options.iter();
            let password = options
                .by_ref()
                .find(|option| *option == "--requirepass")
                .and_then(|_| options.next());
            let login = password.map_or("PING".to_owned(), |password| format!("AUTH {password}"));
            let answers = self.asked_all([&login, "PING"]);
            answers.is_some_and(|[_, answer]| !answer.contains("LOADING"))
        };
        let running = Daemon::run(&mut command, 20, is_ready);
        let runs = running.is_some();
        self.daemon = running.unwrap_or_default();
        runs
    }

    /// Kills the server as a power cut does, except that the system's memory survives.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    pub fn signal(&self, name: &str) {
        self.daemon.signal(name);
    }

    /// Returns the first line of the answer to each command.
    fn asked_all<const N: usize>(&self, commands: [&str; N]) -> Option<[String; N]> {
        let stream = UnixStream::connect(self.socket()).ok()?;
        stream.set_read_timeout(Some(give_up())).ok()?;
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

    /// Runs a command whose answer is one line.
    #[track_caller]
    pub fn tell(&self, command: &str) -> String {
        let answer = self.asked(command).unwrap();
        assert!(!answer.starts_with('-'), "{command}: {answer}");
        answer
    }
}

impl Server {
    /// Runs a command after a login.
    #[track_caller]
    pub fn tell_with_password(&self, password: &str, command: &str) -> String {
        let auth = format!("AUTH {password}");
        let [_, answer] = self.asked_all([&auth, command]).unwrap();
        answer
    }
}
