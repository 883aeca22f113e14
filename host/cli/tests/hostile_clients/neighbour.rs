//! The honest load: requests at a fixed rate to a function that is not attacked, on a connection
//! that is kept and on new ones.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Runtime,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    common::{give_up, time_limit},
    wire::{Connection, HOST, Target},
};

/// Time between two requests of each kind.
const PERIOD: Duration = Duration::from_millis(20);

/// Returns the most by which an attack may delay the slowest answer.
fn slowest() -> Duration {
    time_limit(2)
}

/// The processor time that the threads of a process have had so far, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct ProcessorTime {
    /// The time for which they ran.
    ran: u64,
    /// The time for which they could have run, but others did.
    waited: u64,
}

impl ProcessorTime {
    fn of(pid: u32) -> Self {
        let mut sum = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            // The thread may end at any time.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else {
                continue;
            };
            let mut words = text.split_ascii_whitespace();
            let mut next = || words.next().unwrap().parse::<u64>().unwrap();
            sum.ran += next();
            sum.waited += next();
        }
        sum
    }

    /// Returns which part of the time that the process could have used since then it got.
    fn share_since(self, begin: Self) -> f64 {
        let ran = self.ran.saturating_sub(begin.ran) as f64;
        let waited = self.waited.saturating_sub(begin.waited) as f64;
        if waited == 0.0 {
            1.0
        } else {
            ran / (ran + waited)
        }
    }
}

/// The load while it runs.
pub struct Neighbour {
    node: u32,
    node_time: ProcessorTime,
    began: Instant,
    stop: Arc<AtomicBool>,
    asking: Vec<JoinHandle<Vec<Answer>>>,
    /// A runtime of its own, so that the attack's tasks do not delay it.
    runtime: Runtime,
}

struct Answer {
    /// The response's status, or the reason why there is none.
    status: Result<u16, String>,
    took: Duration,
}

/// The results of the load.
pub struct Served {
    answers: Vec<Answer>,
    /// Number of answers if each arrived at once.
    wanted: usize,
    /// The part that the node got of the processor time that it could have used.
    share: f64,
}

impl Neighbour {
    /// Begins the load on the node of this process.
    pub fn begin(target: &Target, node: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let runtime = Runtime::new().unwrap();
        let asking = [true, false]
            .map(|keeps| runtime.spawn(ask(target.clone(), keeps, stop.clone())))
            .into();
        Self {
            node,
            node_time: ProcessorTime::of(node),
            began: Instant::now(),
            stop,
            asking,
            runtime,
        }
    }

    pub fn began(&self) -> Instant {
        self.began
    }

    pub fn end(self) -> Served {
        self.stop.store(true, Ordering::Relaxed);
        let each = self.began.elapsed().as_millis() / PERIOD.as_millis();
        let mut served = Served {
            answers: Vec::new(),
            wanted: self.asking.len() * each as usize,
            share: ProcessorTime::of(self.node).share_since(self.node_time),
        };
        for asking in self.asking {
            served
                .answers
                .extend(self.runtime.block_on(asking).unwrap());
        }
        served
    }
}

async fn ask(target: Target, keeps: bool, stop: Arc<AtomicBool>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut kept = None;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let asking = async {
            // The node may close an idle connection at any time. A client then repeats the request
            // on another connection (RFC 9112, section 9.3.1).
            if let Some(rested) = kept.take()
                && let Ok(answered) = exchange(&target, Some(rested), "/neighbour/").await
            {
                return Ok(answered);
            }
            exchange(&target, None, "/neighbour/").await
        };
        let status = match timeout(give_up(), asking).await {
            Ok(Ok((status, connection))) => {
                kept = keeps.then_some(connection);
                Ok(status)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        };
        let took = began.elapsed();
        answers.push(Answer { status, took });
        sleep(PERIOD.saturating_sub(took)).await;
    }
    answers
}

/// Returns the status of an honest client's request.
pub fn get(target: &Target, path: &str) -> io::Result<u16> {
    let runtime = Runtime::new().unwrap();
    let exchange = runtime.block_on(timeout_of(exchange(target, None, path)));
    exchange.map(|(status, _)| status)
}

async fn timeout_of<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(give_up(), work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Sends a request on a connection, or on a new one if there is none.
async fn exchange(
    target: &Target,
    kept: Option<Connection>,
    path: &str,
) -> io::Result<(u16, Connection)> {
    let mut connection = match kept {
        Some(connection) => connection,
        None => target.connect(Ipv4Addr::LOCALHOST, None).await?,
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let count = connection.read(&mut piece).await?;
        answer.extend_from_slice(&piece[..count]);
        if count == 0 || is_whole(&answer) {
            let text = String::from_utf8_lossy(&answer);
            let status = text.get(9..12).and_then(|status| status.parse().ok());
            return status
                .map(|status| (status, connection))
                .ok_or_else(|| io::Error::other("the connection ended"));
        }
    }
}

/// Whether a response is complete.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse::<usize>())
    });
    match length {
        Some(length) => body.len() >= length.unwrap(),
        // The response is chunked.
        None => body.ends_with("0\r\n\r\n"),
    }
}

impl Served {
    fn latency(&self, part: f64) -> Duration {
        let mut times: Vec<_> = self.answers.iter().map(|answer| answer.took).collect();
        times.sort();
        let last = times.len().saturating_sub(1);
        times[((last as f64) * part) as usize]
    }

    /// Asserts that every request was answered well and in time, and that there were enough. A busy
    /// machine answers fewer and later also without an attack: `calm` is the load before it. The
    /// neighbour needs a quarter of its usual answers. On one processor, attacker and other
    /// programs take time from the node, which then answers all clients more rarely: there it needs
    /// a quarter of the answers for the time that the node got. A neighbour that an attack stops
    /// has next to no answers, or a very slow one.
    pub fn is_good(&self, calm: &Self) {
        assert!(
            self.answers.iter().all(|answer| answer.status == Ok(200)),
            "{self}"
        );
        let slowest = slowest() + 20 * calm.latency(1.0);
        assert!(self.latency(1.0) <= slowest, "{self}; calm: {calm}");
        let usual = self.wanted * calm.answers.len() / calm.wanted.max(1);
        let usual = usual.min(self.wanted);
        let share = match std::thread::available_parallelism() {
            Ok(count) if count.get() > 1 => 1.0,
            _ => self.share,
        };
        let needed = usual as f64 * share / 4.0;
        assert!(self.answers.len() as f64 >= needed, "{self}; calm: {calm}");
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = BTreeMap::new();
        for answer in &self.answers {
            let status = match &answer.status {
                Ok(status) => status.to_string(),
                Err(error) => error.clone(),
            };
            *counts.entry(status).or_insert(0) += 1;
        }
        write!(
            f,
            "neighbour {counts:?} of {}, share {:.2}, p50 {:.1?}, p99 {:.1?}, slowest {:.1?}",
            self.wanted,
            self.share,
            self.latency(0.5),
            self.latency(0.99),
            self.latency(1.0)
        )
    }
}
