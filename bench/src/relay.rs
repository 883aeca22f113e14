//! `faasw-bench relay`: a body that a function passes from an upstream to its client, on faasw and
//! on another server.
//!
//! The upstream is this program. Both functions receive HTTP/1.0 requests, whose answers end with
//! their connection, so that reading them costs next to nothing here. In each round each server
//! receives one request.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use crate::{
    client::{self, Url},
    contest::Pair,
    interrupt,
    process::{Pid, Tree},
    stats::{self, Ratio},
    table::{self, Table},
};

/// Placeholder of the upstream's host and port in an address.
const UPSTREAM: &str = "UPSTREAM";
/// How many bytes are written and read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// How many bytes of a body pass between two samples of the server's memory.
const MEMORY_CHECK_BYTES: usize = 32 << 20;

/// Options of the `relay` benchmark. Addresses have UPSTREAM in place of the upstream's host and
/// port, such as http://127.0.0.1:8080/asks/proxy/UPSTREAM/body.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pair: Pair,
    /// MiB of the body
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    mebibytes: u64,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results of one server over all rounds.
#[derive(Serialize)]
struct Server {
    name: &'static str,
    /// MiB per second, as the median of the rounds.
    mebibytes_per_second: f64,
    /// The largest increase of memory of the server's processes while a body passed, in MiB, by the
    /// kernel's proportional count, if the process is known: the largest of the rounds.
    more_memory: Option<f64>,
}

/// The results of both servers.
#[derive(Serialize)]
struct Report {
    mebibytes: u64,
    rounds: u32,
    servers: Vec<Server>,
    /// Ratio of our speed to the peer's, round by round.
    speed: Option<Ratio>,
}

/// The result for one body.
struct Transfer {
    per_second: f64,
    more_memory: Option<f64>,
}

/// Measures and prints.
///
/// # Errors
/// Returns an error if a server does not send the whole body, and after an interrupt.
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let bytes = arguments.mebibytes << 20;
    let upstream = upstream(bytes)?;
    let at = |url: &Url| Url {
        authority: url.authority.clone(),
        path: url.path.replace(UPSTREAM, &upstream),
    };
    let (ours, peer) = (at(&arguments.pair.ours), at(&arguments.pair.peer));
    for url in [&ours, &peer] {
        // The first body is not counted: connections and a worker are started for it.
        pass(url, None, bytes)?;
    }
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        interrupt::check()?;
        rounds.push((
            pass(&ours, arguments.pair.ours_pid, bytes)?,
            pass(&peer, arguments.pair.peer_pid, bytes)?,
        ));
    }
    let of = |name, transfers: Vec<&Transfer>| {
        let speeds = transfers.iter().map(|transfer| transfer.per_second);
        let memory = transfers.iter().filter_map(|transfer| transfer.more_memory);
        Some(Server {
            name,
            mebibytes_per_second: stats::median_of(speeds)?,
            more_memory: memory.reduce(f64::max),
        })
    };
    let servers = [
        of("ours", rounds.iter().map(|(ours, _)| ours).collect()),
        of("peer", rounds.iter().map(|(_, peer)| peer).collect()),
    ];
    let pairs = rounds
        .iter()
        .map(|(ours, peer)| (ours.per_second, peer.per_second));
    let report = Report {
        mebibytes: arguments.mebibytes,
        rounds: arguments.rounds,
        servers: servers.into_iter().flatten().collect(),
        speed: Ratio::of(&pairs.collect::<Vec<_>>()),
    };
    table::print(arguments.json, &report, || report.text())
}

impl Report {
    fn text(&self) -> String {
        let mut table = Table::new(["", "MiB/s", "MiB more while it passes"]);
        for server in &self.servers {
            let memory = server
                .more_memory
                .map_or("-".into(), |more| format!("{more:.1}"));
            let speed = format!("{:.0}", server.mebibytes_per_second);
            table.row([server.name.to_owned(), speed, memory]);
        }
        let speed = match &self.speed {
            Some(speed) => format!(
                "ours to peer: {:.2} ({:.2} to {:.2}) times the speed\n",
                speed.median, speed.low, speed.high
            ),
            None => String::new(),
        };
        format!(
            "{} MiB, {} rounds\n{table}{speed}",
            self.mebibytes, self.rounds
        )
    }
}

/// Sends a request to a function and reads its whole answer.
fn pass(url: &Url, server: Option<Pid>, bytes: u64) -> Result<Transfer> {
    let memory = || {
        server
            .and_then(|pid| Tree::of(pid).ok())
            .map(|tree| tree.proportional_bytes())
    };
    let (before, mut most) = (memory(), None);
    let mut stream = client::connect(url, None)?;
    stream.set_read_timeout(Some(client::TIMEOUT))?;
    let begun = Instant::now();
    let mut looking = Duration::ZERO;
    let (authority, path) = (&url.authority, &url.path);
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {authority}\r\n\r\n")?;
    let mut piece = vec![0; CHUNK_BYTES];
    let mut head = Vec::new();
    let mut received = 0_u64;
    let mut looked_at = 0;
    loop {
        let read = stream.read(&mut piece)?;
        let mut data = piece.get(..read).unwrap_or_default();
        if data.is_empty() {
            break;
        }
        if received == 0 && !head.ends_with(b"\r\n\r\n") {
            let end = data.windows(4).position(|four| four == b"\r\n\r\n");
            let (of_head, body) = data.split_at(end.map_or(read, |end| end + 4));
            head.extend_from_slice(of_head);
            ensure!(
                head.starts_with(b"HTTP/1.1 200 ") || head.starts_with(b"HTTP/1.0 200 "),
                "{authority}{path} answers: {}",
                String::from_utf8_lossy(&head)
            );
            data = body;
        }
        received += data.len() as u64;
        if received - looked_at >= MEMORY_CHECK_BYTES as u64 {
            looked_at = received;
            let began_to_look = Instant::now();
            most = most.max(memory());
            looking += began_to_look.elapsed();
        }
    }
    let took = begun.elapsed().saturating_sub(looking);
    ensure!(
        received == bytes,
        "{authority}{path} gave {received} bytes of {bytes}"
    );
    let more = most
        .zip(before)
        .map(|(most, before)| most.saturating_sub(before));
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(Transfer {
        per_second: mebibytes(bytes) / took.as_secs_f64(),
        more_memory: more.map(mebibytes),
    })
}

/// Starts a server that answers each connection's request with `bytes` bytes. Returns its host and
/// port.
fn upstream(bytes: u64) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("the upstream has no port")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // An error needs no report here: the other side sees that the body is incomplete.
            thread::spawn(move || answer(stream, bytes).ok());
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, bytes: u64) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut piece = vec![0; 4 << 10];
    // The whole request is read, because closing a socket with unread bytes would cut the answer
    // off.
    loop {
        let read = stream.read(&mut piece)?;
        request.extend_from_slice(piece.get(..read).unwrap_or_default());
        let has_head = request.windows(4).any(|four| four == b"\r\n\r\n");
        let is_chunked = request
            .windows(7)
            .any(|word| word.eq_ignore_ascii_case(b"chunked"));
        if read == 0 || has_head && (!is_chunked || request.ends_with(b"0\r\n\r\n")) {
            break;
        }
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n"
    )?;
    let piece = vec![b'x'; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        stream.write_all(piece.get(..now).unwrap_or_default())?;
        left -= now as u64;
    }
    stream.shutdown(Shutdown::Write)
}
