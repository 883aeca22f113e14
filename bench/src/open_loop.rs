//! Open-loop load: each request is sent at its time, whatever has become of those
//! before. That is how many clients who know nothing of each other ask; a closed loop
//! asks less when it is answered late, and so can offer no more than is taken.

use std::{
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use crate::{
    client::{self, Connection, Connections, Url},
    interrupt,
};

/// Connections at most, fewer than a node takes. One is used again when its answer is
/// there.
const CONNECTIONS_MAX: usize = 3500;
/// Connections from one address, where that can be chosen: clients are many.
const OF_ONE_ADDRESS: usize = 32;
/// How long answers are waited for after the last request was sent.
const AFTERWARDS: Duration = Duration::from_secs(20);

/// What a run saw.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Requests that were due in the measured time, which counts in all that follows.
    pub offered: u64,
    /// Answers of success that came in it, whenever their requests were due.
    pub served: u64,
    /// From when a request was due until its answer of success was whole.
    pub accepted: Vec<Duration>,
    /// The same of answers that say to come again later.
    pub refused: Vec<Duration>,
    /// Requests that were answered otherwise, or not at all.
    pub errors: u64,
    /// What went wrong first.
    pub first_error: Option<String>,
    /// How late a request was sent at most: the generator's own fault.
    pub late: Duration,
}

/// A connection, and when the request under way on it was due.
struct Slot {
    connection: Option<Connection>,
    due: Instant,
    is_idle: bool,
    /// It connects still, and sends when it has.
    connects: bool,
}

/// A run.
struct Run<'a> {
    url: &'a Url,
    request: Vec<u8>,
    epoll: rustix::fd::OwnedFd,
    slots: Vec<Slot>,
    /// Slots without a request under way.
    idle: Vec<usize>,
    /// When measuring begins and ends.
    measured: (Instant, Instant),
    outcome: Outcome,
}

/// Sends `per_second` requests each second, first for `warm_up` and then for `time`,
/// which is measured.
///
/// # Errors
/// The system's, and after an interrupt. A request that fails is counted.
pub fn run(url: &Url, per_second: f64, warm_up: Duration, time: Duration) -> Result<Outcome> {
    let begun = Instant::now();
    let until = begun + warm_up + time;
    let mut run = Run {
        url,
        request: client::request(url, &url.path, Connections::Keep, ""),
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        slots: Vec::new(),
        idle: Vec::new(),
        measured: (begun + warm_up, until),
        outcome: Outcome::default(),
    };
    let count = (per_second * (warm_up + time).as_secs_f64()).round() as u64;
    let due = |number: u64| begun + Duration::from_secs_f64(number as f64 / per_second);
    let end = until + AFTERWARDS;
    let mut next = 0;
    let mut events = Vec::with_capacity(1024);
    while next < count || run.under_way() > 0 {
        interrupt::check()?;
        let now = Instant::now();
        if now >= end {
            let left = run.under_way() as u64;
            run.fail(left, "no answer in time");
            break;
        }
        while next < count && due(next) <= now {
            run.begin(due(next));
            next += 1;
        }
        let wake = if next < count { due(next) } else { end };
        let rest = Timespec::try_from(wake.saturating_duration_since(Instant::now()))?;
        match epoll::wait(&run.epoll, spare_capacity(&mut events), Some(&rest)) {
            Err(rustix::io::Errno::INTR) => {}
            other => {
                other?;
            }
        }
        for event in events.drain(..) {
            run.go_on(event.data.u64() as usize)?;
        }
    }
    Ok(run.outcome)
}

impl Run<'_> {
    fn under_way(&self) -> usize {
        self.slots.len() - self.idle.len()
    }

    fn fail(&mut self, count: u64, why: &str) {
        self.outcome.errors += count;
        if count > 0 {
            self.outcome
                .first_error
                .get_or_insert_with(|| why.to_owned());
        }
    }

    /// Sends a request that is due.
    fn begin(&mut self, due: Instant) {
        self.outcome.offered += u64::from(due >= self.measured.0);
        self.outcome.late = self.outcome.late.max(due.elapsed());
        let index = match self.idle.pop() {
            Some(index) => index,
            None if self.slots.len() < CONNECTIONS_MAX => {
                self.slots.push(Slot {
                    connection: None,
                    due,
                    is_idle: false,
                    connects: false,
                });
                self.slots.len() - 1
            }
            None => return self.fail(1, "all connections wait for an answer"),
        };
        if let Err(error) = self.send(index, due) {
            self.give_up(index, &error);
        }
    }

    fn send(&mut self, index: usize, due: Instant) -> Result<()> {
        let slot = self.slots.get_mut(index).context("no such connection")?;
        slot.due = due;
        slot.is_idle = false;
        let connection = match &mut slot.connection {
            Some(connection) => connection,
            none => {
                let (opened, is_made) = Connection::begin(self.url, source(self.url, index))?;
                let data = epoll::EventData::new_u64(index as u64);
                slot.connects = !is_made;
                let awaited = if is_made {
                    epoll::EventFlags::IN
                } else {
                    epoll::EventFlags::OUT
                };
                epoll::add(&self.epoll, &opened, data, awaited)?;
                none.insert(opened)
            }
        };
        if slot.connects {
            return Ok(());
        }
        connection.send(&self.request)
    }

    /// A connection that was begun is made, and its request can be sent.
    fn made(&mut self, index: usize) -> Result<()> {
        let slot = self.slots.get_mut(index).context("no such connection")?;
        slot.connects = false;
        let connection = slot.connection.as_mut().context("no connection")?;
        connection.made()?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, &*connection, data, epoll::EventFlags::IN)?;
        connection.send(&self.request)
    }

    /// What was to be sent failed.
    fn give_up(&mut self, index: usize, error: &anyhow::Error) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.connection = None;
            slot.connects = false;
            slot.is_idle = true;
        }
        self.idle.push(index);
        self.fail(1, &format!("{error:#}"));
    }

    /// Reads what has come on a connection.
    fn go_on(&mut self, index: usize) -> Result<()> {
        let slot = self
            .slots
            .get_mut(index)
            .context("an event of no connection")?;
        if slot.connects {
            if let Err(error) = self.made(index) {
                self.give_up(index, &error);
            }
            return Ok(());
        }
        let Some(connection) = &mut slot.connection else {
            return Ok(());
        };
        let part = connection.receive_part();
        let now = Instant::now();
        let took = now.saturating_duration_since(slot.due);
        let (from, until) = self.measured;
        let counts = slot.due >= from;
        match part {
            Ok(None) => return Ok(()),
            Ok(Some(response)) => {
                slot.is_idle = true;
                if !response.keeps_connection {
                    slot.connection = None;
                }
                if (200..300).contains(&response.status) {
                    self.outcome.served += u64::from(now >= from && now < until);
                    self.outcome.accepted.extend(counts.then_some(took));
                } else if response.status == 503 && response.says_when_to_retry {
                    self.outcome.refused.extend(counts.then_some(took));
                } else {
                    self.fail(1, &format!("answered {}", response.status));
                }
            }
            Err(error) => {
                slot.connection = None;
                // A connection that ends between two requests is nobody's failure.
                if slot.is_idle {
                    return Ok(());
                }
                slot.is_idle = true;
                self.fail(1, &format!("{error:#}"));
            }
        }
        self.idle.push(index);
        Ok(())
    }
}

/// The address that a connection comes from, where all of them are this machine's.
fn source(url: &Url, connection: usize) -> Option<Ipv4Addr> {
    let mut addresses = url.authority.to_socket_addrs().ok()?;
    let is_here = addresses.any(|address| match address {
        SocketAddr::V4(address) => address.ip().is_loopback(),
        SocketAddr::V6(_) => false,
    });
    let number = u16::try_from(connection / OF_ONE_ADDRESS + 1).ok()?;
    let [high, low] = number.to_be_bytes();
    is_here.then(|| Ipv4Addr::new(127, 9, high, low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
    const BUSY: &str =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy";
    const RUDE: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

    fn run_on(answers: &[&'static str]) -> Outcome {
        // As many connections as there may be, each with answers for all.
        let url = server(vec![answers.iter().copied().cycle().take(90).collect(); 60]);
        run(&url, 1000.0, Duration::ZERO, Duration::from_millis(60)).unwrap()
    }

    #[test]
    fn as_many_are_sent_as_are_offered_and_answers_are_told_apart() {
        let outcome = run_on(&[FINE]);
        assert_eq!((outcome.offered, outcome.accepted.len()), (60, 60));
        let outcome = run_on(&[BUSY]);
        assert_eq!((outcome.offered, outcome.refused.len()), (60, 60));
        assert_eq!(outcome.errors, 0);
        let outcome = run_on(&[RUDE]);
        assert_eq!(outcome.errors, 60);
        assert_eq!(outcome.first_error.unwrap(), "answered 503");
    }

    #[test]
    fn connections_of_one_machine_come_from_many_addresses() {
        let here = "http://127.0.0.1:80/".parse().unwrap();
        assert_eq!(source(&here, 0), source(&here, OF_ONE_ADDRESS - 1));
        assert_ne!(source(&here, 0), source(&here, OF_ONE_ADDRESS));
        let elsewhere = "http://192.0.2.1:80/".parse().unwrap();
        assert_eq!(source(&elsewhere, 0), None);
    }
}
