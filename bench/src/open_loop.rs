//! Open-loop load: each request is sent at its time, regardless of earlier requests. Many
//! independent clients behave like that. A closed loop sends less when answers are late, and so
//! cannot offer more than the server handles.

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

/// The most connections, which are fewer than a node accepts. A connection is used again when its
/// answer has arrived.
const CONNECTIONS_MAX: usize = 3500;
/// Connections from one source address, if that can be chosen, because real clients have many.
const OF_ONE_ADDRESS: usize = 32;
/// How long the benchmark waits for answers after the last request was sent.
const AFTERWARDS: Duration = Duration::from_secs(20);

/// The results of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Requests that were due in the measured time. Only these count in `accepted` and `refused`.
    pub offered: u64,
    /// Successful answers that arrived in the measured time, whenever their requests were due.
    pub served: u64,
    /// Times from when a request was due until its successful answer was complete.
    pub accepted: Vec<Duration>,
    /// Times from when a request was due until its refusal, with 503 and Retry-After, was complete.
    pub refused: Vec<Duration>,
    /// Requests with any other answer, or none.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// The longest delay in sending a request, which is the generator's own fault.
    pub late: Duration,
}

/// A connection, and the time at which its current request was due.
struct Slot {
    connection: Option<Connection>,
    due: Instant,
    is_idle: bool,
    /// Whether the connection is not established yet. Its request is sent when it is.
    connects: bool,
}

/// The state of a run.
struct Run<'a> {
    url: &'a Url,
    request: Vec<u8>,
    epoll: rustix::fd::OwnedFd,
    slots: Vec<Slot>,
    /// Slots without a request under way.
    idle: Vec<usize>,
    /// The begin and the end of the measured time.
    measured: (Instant, Instant),
    outcome: Outcome,
}

/// Sends `per_second` requests each second, first for `warm_up` and then for `time`, which is
/// measured.
///
/// # Errors
/// Returns an error if `epoll` fails, and after an interrupt. A request that fails is counted.
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
            run.receive_available(event.data.u64() as usize)?;
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

    /// Finishes a connection that was begun, and sends its request.
    fn finish_connecting(&mut self, index: usize) -> Result<()> {
        let slot = self.slots.get_mut(index).context("no such connection")?;
        slot.connects = false;
        let connection = slot.connection.as_mut().context("no connection")?;
        connection.finish_connecting()?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, &*connection, data, epoll::EventFlags::IN)?;
        connection.send(&self.request)
    }

    /// Counts a request that could not be sent, and frees its slot.
    fn give_up(&mut self, index: usize, error: &anyhow::Error) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.connection = None;
            slot.connects = false;
            slot.is_idle = true;
        }
        self.idle.push(index);
        self.fail(1, &format!("{error:#}"));
    }

    /// Reads what has arrived on a connection.
    fn receive_available(&mut self, index: usize) -> Result<()> {
        let slot = self
            .slots
            .get_mut(index)
            .context("an event of no connection")?;
        if slot.connects {
            if let Err(error) = self.finish_connecting(index) {
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
                // A connection that ends between two requests is no error.
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

/// Returns the address from which a connection is made, if the server is on this machine's loopback
/// network.
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
        // There are as many connections as requests, each with answers for all of them.
        let url = server(vec![answers.iter().copied().cycle().take(90).collect(); 60]);
        run(&url, 1000.0, Duration::ZERO, Duration::from_millis(60)).unwrap()
    }

    #[test]
    fn all_offered_requests_are_sent_and_answers_are_classified() {
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
