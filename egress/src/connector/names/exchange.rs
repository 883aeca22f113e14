//! Queries to one server for a name's addresses: by datagrams and, for long answers, by a stream.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::message::{LINKS_MAX, Question, RecordType, Reply, WireName};

/// Most bytes of a datagram. A question here allows 512 (RFC 1035, 4.2.1); some servers send more.
const DATAGRAM_MAX: usize = 4096;

/// Datagrams per question: the first, and two more in case one is lost.
const DATAGRAMS: u32 = 3;

/// Most datagrams that one exchange reads. A server that sends more floods the connector, and the
/// exchange ends.
const STRANGE_MAX: usize = 64;

/// A name's addresses, and for how long they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupAnswer {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
    /// For how long they hold.
    pub time: Duration,
}

/// Why a server has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupFailure {
    /// The name does not exist or has no address: the response code. This is conclusive.
    Known(u16),
    /// The server has no conclusive answer: its response code, if it sent one. Another server may
    /// have one.
    Failed(Option<u16>),
    /// The server answered nothing about this name in time. It may be running: the name's own
    /// servers may be slow.
    SilentOnName,
    /// The server answered nothing at all in time, not even about the root.
    SilentOnAll,
}

impl LookupFailure {
    /// Returns whether the server answered nothing about the name.
    pub fn is_silent(self) -> bool {
        matches!(self, Self::SilentOnName | Self::SilentOnAll)
    }

    /// Returns the reason for two failures together. A conclusive failure counts only if both are
    /// conclusive, and any answer takes precedence over silence.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(_), other) => other,
            (silent, other) if silent.is_silent() => other,
            (failed, _) => failed,
        }
    }
}

/// The way to name servers; tests have their own.
pub trait Network {
    /// Queries a server for addresses of both families, and waits for `wait` at most.
    async fn ask(
        &self,
        server: SocketAddr,
        name: &WireName,
        wait: Duration,
    ) -> Result<LookupAnswer, LookupFailure>;
}

/// The sockets of this process.
#[derive(Debug)]
pub struct Sockets;

impl Network for Sockets {
    async fn ask(
        &self,
        server: SocketAddr,
        name: &WireName,
        wait: Duration,
    ) -> Result<LookupAnswer, LookupFailure> {
        let begun = Instant::now();
        let deadline = begun + wait;
        let mut families = [RecordType::A, RecordType::Aaaa].map(|kind| Family::new(kind, name));
        // Each time round a server has left the next alias to this resolver.
        for _ in 0..=LINKS_MAX {
            let mut open: Vec<_> = families.iter_mut().filter(|it| it.is_open()).collect();
            if open.is_empty() {
                break;
            }
            let pace = deadline.saturating_duration_since(Instant::now()) / DATAGRAMS;
            ask_by_datagrams(server, &mut open, pace).await;
            ask_by_stream(server, &mut open, deadline).await;
            open.into_iter().for_each(Family::conclude);
        }
        let [four, six] =
            families.map(|family| family.outcome.unwrap_or(Err(LookupFailure::Failed(None))));
        match (four, six) {
            (Ok(mut four), Ok(six)) => {
                four.addresses.extend(six.addresses);
                four.time = four.time.min(six.time);
                Ok(four)
            }
            // Addresses of one family are enough.
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(four), Err(six)) => Err(four.or(six)),
        }
    }
}

/// The search for addresses of one family.
struct Family {
    kind: RecordType,
    name: WireName,
    /// Aliases on the way so far, and for how many seconds they hold.
    links: usize,
    ttl: u32,
    question: Option<Question>,
    reply: Result<Reply, LookupFailure>,
    outcome: Option<Result<LookupAnswer, LookupFailure>>,
}

impl Family {
    fn new(kind: RecordType, name: &WireName) -> Self {
        Self {
            kind,
            name: name.clone(),
            links: 0,
            ttl: u32::MAX,
            question: None,
            reply: Err(LookupFailure::Failed(None)),
            outcome: None,
        }
    }

    fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Evaluates the reply: addresses, the next name of a chain of aliases, or a failure.
    fn conclude(&mut self) {
        self.question = None;
        let failed = Err(LookupFailure::Failed(None));
        self.outcome = Some(match std::mem::replace(&mut self.reply, failed) {
            Err(unfound) => Err(unfound),
            Ok(Reply::Addresses(addresses, ttl)) => Ok(LookupAnswer {
                addresses,
                time: Duration::from_secs(self.ttl.min(ttl).into()),
            }),
            Ok(Reply::Alias { name, links, ttl }) => {
                self.links += links;
                if self.links <= LINKS_MAX {
                    self.ttl = self.ttl.min(ttl);
                    self.name = name;
                    return;
                }
                Err(LookupFailure::Failed(None))
            }
            Ok(Reply::Nothing(code)) => Err(LookupFailure::Known(code)),
            Ok(Reply::Failed(code)) => Err(LookupFailure::Failed(code)),
            Ok(Reply::Truncated) => Err(LookupFailure::Failed(None)),
        });
    }
}

/// Queries all families by datagrams of one socket, each three times at most, `pace` apart. A query
/// for the root goes along from the second time on: a server that answers it is running.
async fn ask_by_datagrams(server: SocketAddr, families: &mut [&mut Family], pace: Duration) {
    let outcome = exchange_datagrams(server, families, pace).await;
    let silent = match outcome {
        _ if families.iter().any(|family| family.reply.is_ok()) => LookupFailure::SilentOnName,
        Ok(true) => LookupFailure::SilentOnName,
        Ok(false) => LookupFailure::SilentOnAll,
        // The kernel reports that no server listens there, or that it is unreachable.
        Err(error) if is_of_the_server(&error) => LookupFailure::SilentOnAll,
        // This process has no more descriptors or memory, which is no fault of the server.
        Err(_) => LookupFailure::SilentOnName,
    };
    for family in families {
        if family.question.is_some() && family.reply.is_err() {
            family.reply = Err(silent);
        }
    }
}

fn is_of_the_server(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    [ConnectionRefused, HostUnreachable, NetworkUnreachable].contains(&error.kind())
}

/// Returns whether the server answered anything at all.
async fn exchange_datagrams(
    server: SocketAddr,
    families: &mut [&mut Family],
    pace: Duration,
) -> io::Result<bool> {
    for family in families.iter_mut() {
        family.question = Some(question(&family.name, family.kind)?);
    }
    let root = question(&WireName::root(), RecordType::Ns)?;
    let own = match server {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    // The kernel takes a random port, and delivers only datagrams of this server.
    let socket = UdpSocket::bind((own, 0)).await?;
    socket.connect(server).await?;
    let (mut is_there, mut strange) = (false, 0);
    let mut datagram = vec![0; DATAGRAM_MAX];
    for number in 0..DATAGRAMS {
        for family in families.iter().filter(|family| family.reply.is_err()) {
            if let Some(question) = &family.question {
                socket.send(&question.to_message()).await?;
            }
        }
        if number > 0 && !is_there {
            socket.send(&root.to_message()).await?;
        }
        let next = Instant::now() + pace;
        // The clock is read here because `timeout_at` does not end while datagrams keep coming.
        while Instant::now() < next {
            let Ok(received) = timeout_at(next, socket.recv(&mut datagram)).await else {
                break;
            };
            strange += 1;
            if strange > STRANGE_MAX {
                return Ok(is_there);
            }
            let message = datagram.get(..received?).unwrap_or_default();
            is_there |= root.reply(message).is_some();
            for family in families.iter_mut().filter(|family| family.reply.is_err()) {
                let question = family.question.as_ref();
                if let Some(reply) = question.and_then(|question| question.reply(message)) {
                    family.reply = Ok(reply);
                    is_there = true;
                }
            }
            if families.iter().all(|family| family.reply.is_ok()) {
                return Ok(true);
            }
        }
    }
    Ok(is_there)
}

/// Repeats over a stream the queries whose answers did not fit in a datagram.
async fn ask_by_stream(server: SocketAddr, families: &mut [&mut Family], deadline: Instant) {
    let mut truncated = families
        .iter_mut()
        .filter(|family| family.reply == Ok(Reply::Truncated))
        .peekable();
    if truncated.peek().is_none() {
        return;
    }
    let mut stream = timeout_at(deadline, TcpStream::connect(server)).await;
    for family in truncated {
        family.reply = match &mut stream {
            Ok(Ok(stream)) => {
                match timeout_at(deadline, exchange_by_stream(stream, family)).await {
                    Ok(reply) => Ok(reply.unwrap_or(Reply::Failed(None))),
                    Err(_) => Err(LookupFailure::SilentOnName),
                }
            }
            Ok(Err(_)) => Err(LookupFailure::Failed(None)),
            Err(_) => Err(LookupFailure::SilentOnName),
        };
    }
}

async fn exchange_by_stream(stream: &mut TcpStream, family: &Family) -> io::Result<Reply> {
    let question = question(&family.name, family.kind)?;
    let message = question.to_message();
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes()[..], &message].concat();
    stream.write_all(&framed).await?;
    // A lookup holds one answer at a time, of 64 KiB at most.
    let length = stream.read_u16().await?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    question
        .reply(&message)
        .filter(|reply| *reply != Reply::Truncated)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Builds a question with a random id.
fn question(name: &WireName, kind: RecordType) -> io::Result<Question> {
    let mut id = [0; 2];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut id, flags)?;
    Ok(Question {
        id: u16::from_ne_bytes(id),
        name: name.clone(),
        kind,
    })
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
