//! Servers that a report starts, and that end in any case.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

use super::{function::Function, setting::Setting};
use crate::{client::Url, interrupt, node::Commands, process::Pid};

/// The longest that a server may take to start: large components are compiled first.
const START_MAX: Duration = Duration::from_secs(180);
/// The longest that a server may take to end; after that it is killed.
const STOP_MAX: Duration = Duration::from_secs(15);
/// Interval at which a server is checked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How many lines of a server's output an error repeats.
const LAST_LINES: usize = 5;

/// A running server. It ends when this value is dropped, and with this process.
struct Server {
    child: Child,
    url: Url,
}

impl Server {
    /// Starts `command`, whose output goes to the file `log`, and waits until it prints an address
    /// behind `mark`.
    fn start(mut command: Command, log: &Path, mark: &str) -> Result<Self> {
        let name = Path::new(command.get_program()).display().to_string();
        let file = File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        // SAFETY: between fork and exec there is only this one system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut server = Self {
            child,
            url: Url {
                authority: String::new(),
                path: String::new(),
            },
        };
        let begun = Instant::now();
        loop {
            let ended = server.child.try_wait()?.is_some();
            let text = fs::read_to_string(log).unwrap_or_default();
            if let Some(url) = address(&text, mark) {
                server.url = url;
                return Ok(server);
            }
            interrupt::check()?;
            if ended || begun.elapsed() > START_MAX {
                bail!("{name} did not start: {}", last_lines(&text));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Server {
    fn ask_to_end(&mut self) {
        // The process is a child of this one. Until it was waited for, its number is not reused.
        if matches!(self.child.try_wait(), Ok(None))
            && let Ok(pid) = i32::try_from(self.child.id())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ask_to_end();
        let begun = Instant::now();
        while begun.elapsed() < STOP_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address behind `mark`, once its line is complete.
fn address(text: &str, mark: &str) -> Option<Url> {
    let (_, rest) = text.split_once(mark)?;
    let (line, _) = rest.split_once('\n')?;
    let word = line.split_ascii_whitespace().next()?;
    // The daemon prints an address without a scheme.
    if word.contains("://") {
        word.parse().ok()
    } else {
        format!("http://{word}/").parse().ok()
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(LAST_LINES);
    lines
        .into_iter()
        .skip(skipped)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A node with one function.
pub struct Node {
    server: Server,
    commands: Commands,
    log: PathBuf,
    // Removed after the node has ended.
    _folder: Option<TempDir>,
}

impl Node {
    /// Starts a node that serves `function`, in a data directory of its own.
    ///
    /// # Errors
    /// Returns an error with the node's last output if it does not start.
    pub fn start(faasw: &Path, function: &Function, setting: &Setting) -> Result<Self> {
        let folder = TempDir::with_prefix("faasw-bench-")?;
        let node = Self::start_in(folder.path(), faasw, function, setting)?;
        Ok(Self {
            _folder: Some(folder),
            ..node
        })
    }

    /// Starts a node as [`Node::start`] does, in this folder. If an earlier node used the folder,
    /// the function is compiled already.
    ///
    /// # Errors
    /// Returns an error with the node's last output if it does not start.
    pub fn start_in(
        folder: &Path,
        faasw: &Path,
        function: &Function,
        setting: &Setting,
    ) -> Result<Self> {
        let data_dir = folder.join("data");
        let mut command = Command::new(faasw);
        command
            .arg("up")
            .arg(&function.file)
            .args(["--name", &function.name, "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(&data_dir);
        if let Some(freeze) = &function.freeze {
            command.args(["--freeze", freeze]);
        }
        command
            .args(&setting.options)
            .envs(setting.environment.iter().cloned());
        let log = folder.join("log");
        let server = Server::start(command, &log, "  curl ")?;
        Ok(Self {
            server,
            log,
            commands: Commands::new(faasw, &data_dir),
            _folder: None,
        })
    }

    /// Starts a daemon without functions, with a data directory of its own.
    ///
    /// # Errors
    /// Returns an error with the daemon's last output if it does not start.
    pub fn serve(faasw: &Path, options: &[&str]) -> Result<Self> {
        let folder = TempDir::with_prefix("faasw-bench-")?;
        let data_dir = folder.path().join("data");
        let mut command = Command::new(faasw);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data_dir)
            .args(options);
        let log = folder.path().join("log");
        Ok(Self {
            server: Server::start(command, &log, "ready on ")?,
            log,
            commands: Commands::new(faasw, &data_dir),
            _folder: Some(folder),
        })
    }

    /// Returns the address of the node's function; for a daemon, the daemon's own.
    pub fn url(&self) -> &Url {
        &self.server.url
    }

    /// Returns the number of the node's process.
    pub fn pid(&self) -> Pid {
        self.server.child.id()
    }

    /// Returns the node's command line.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Returns the node's last lines of output.
    pub fn log_text(&self) -> String {
        last_lines(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Asks the node to end, and waits until it has. Returns how long that took.
    ///
    /// # Errors
    /// Returns an error if it takes longer than `most`.
    pub fn end(mut self, most: Duration) -> Result<Duration> {
        let begun = Instant::now();
        self.server.ask_to_end();
        while matches!(self.server.child.try_wait(), Ok(None)) {
            ensure!(
                begun.elapsed() < most,
                "the node did not end within {most:?}"
            );
            thread::sleep(POLL_INTERVAL);
        }
        Ok(begun.elapsed())
    }
}

/// A component that is compiled ahead for `wasmtime serve`.
pub struct Compiled {
    wasmtime: PathBuf,
    folder: TempDir,
}

/// A running `wasmtime serve` of a compiled component.
pub struct Peer {
    server: Server,
}

/// How a peer treats instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// A new instance for each request.
    Fresh,
    /// A single instance for all requests: no isolation, stale state.
    Warm,
}

/// Options of all the peer's commands: its fastest allocator.
const PEER: [&str; 2] = ["-O", "pooling-allocator=y"];
const SERVE: [&str; 5] = ["--allow-precompiled", "-S", "cli", "--addr", "127.0.0.1:0"];
const WARM: [&str; 4] = [
    "--max-instance-reuse-count",
    "1000000000",
    "--idle-instance-timeout",
    "3600s",
];

impl Compiled {
    /// Compiles the function's file.
    ///
    /// # Errors
    /// Returns an error if `wasmtime` cannot be run or cannot compile the file.
    pub fn new(wasmtime: &Path, function: &Function) -> Result<Self> {
        let folder = TempDir::with_prefix("faasw-bench-")?;
        let output = Command::new(wasmtime)
            .arg("compile")
            .args(PEER)
            .arg(&function.file)
            .arg("-o")
            .arg(folder.path().join("component.cwasm"))
            .output()
            .with_context(|| format!("cannot run {}", wasmtime.display()))?;
        ensure!(
            output.status.success(),
            "wasmtime compile: {}",
            last_lines(&String::from_utf8_lossy(&output.stderr))
        );
        Ok(Self {
            wasmtime: wasmtime.to_owned(),
            folder,
        })
    }

    /// Serves the component.
    ///
    /// # Errors
    /// Returns an error with the peer's last output if it does not start.
    pub fn serve(&self, reuse: Reuse) -> Result<Peer> {
        let mut command = Command::new(&self.wasmtime);
        command.arg("serve").args(PEER).args(SERVE);
        if reuse == Reuse::Warm {
            command.args(WARM);
        }
        command.arg(self.folder.path().join("component.cwasm"));
        let log = self.folder.path().join(format!("{reuse:?}.log"));
        let server = Server::start(command, &log, "Serving HTTP on ")?;
        Ok(Peer { server })
    }
}

impl Peer {
    /// Returns the address of the peer.
    pub fn url(&self) -> &Url {
        &self.server.url
    }

    /// Returns the number of the peer's process.
    pub fn pid(&self) -> Pid {
        self.server.child.id()
    }
}

/// Returns the peer's command line, for a report.
pub fn peer_command(reuse: Reuse) -> String {
    let mut words = vec!["wasmtime serve"];
    words.extend(PEER);
    words.extend(SERVE);
    if reuse == Reuse::Warm {
        words.extend(WARM);
    }
    words.push("FILE.cwasm");
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_address_counts_when_its_line_is_whole() {
        let mark = "  curl ";
        assert_eq!(address("ready\n  curl http://127.0.0.1:80/he", mark), None);
        let daemon = address("ready on 127.0.0.1:80 with 0 functions\n", "ready on ").unwrap();
        assert_eq!(daemon.authority, "127.0.0.1:80");
        let url = address("ready\n  curl http://127.0.0.1:80/hello/\n", mark).unwrap();
        assert_eq!(
            (url.authority.as_str(), url.path.as_str()),
            ("127.0.0.1:80", "/hello/")
        );
    }

    #[test]
    fn a_server_ends_with_its_guard() {
        let folder = TempDir::new().unwrap();
        let script = "echo 'on http://127.0.0.1:9/'; exec sleep 600";
        let server = Server::start(shell(script), &folder.path().join("log"), "on ").unwrap();
        let proc = format!("/proc/{}", server.child.id());
        assert!(Path::new(&proc).exists());
        drop(server);
        assert!(!Path::new(&proc).exists());
    }

    #[test]
    fn a_server_that_ends_at_once_reports_the_reason() {
        let folder = TempDir::new().unwrap();
        let started = Server::start(shell("echo no luck"), &folder.path().join("log"), "on ");
        let error = started.err().unwrap().to_string();
        assert_eq!(error, "sh did not start: no luck");
    }
}
