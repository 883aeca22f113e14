//! Closed-loop load: a number of connections, each of which sends its next request when it has its
//! answer.
//!
//! A single connection is served by blocking calls on the calling thread, which adds least to the
//! measured time. More connections are shared between few threads that wait for all of them at
//! once. With a thread for each, the contestants would compete with the generator's own context
//! switches.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use crate::{
    client::{self, Connection, Connections, TIMEOUT, Url},
    interrupt,
};

/// Threads that share the connections. The server needs the other cores more.
const THREADS_MAX: usize = 2;

/// How long a run goes on.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Until this many requests were sent, over all connections.
    Requests(u64),
    /// For this time; answers to requests that were sent before its end still count.
    Elapsed(Duration),
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Time from before a request was written to the last byte of its answer. If each request has a
    /// connection of its own, connecting is included.
    pub latencies: Vec<Duration>,
    /// Requests that were not answered, or not with success.
    pub errors: u64,
    /// The first error on some connection.
    pub first_error: Option<String>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

/// A number of connections to one address.
#[derive(Debug)]
pub struct Generator {
    url: Url,
    request: Vec<u8>,
    connections: Connections,
    slots: Vec<Slot>,
}

/// A connection, and the request under way on it.
#[derive(Debug)]
struct Slot {
    connection: Option<Connection>,
    begun: Instant,
}

/// How many requests, or for how long, may still be sent.
enum Budget {
    Requests(AtomicU64),
    Deadline(Instant),
}

impl Budget {
    /// Returns whether one more request may be sent, and counts it.
    fn take(&self) -> bool {
        !interrupt::is_interrupted()
            && match self {
                Self::Requests(left) => left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        left.checked_sub(1)
                    })
                    .is_ok(),
                Self::Deadline(deadline) => Instant::now() < *deadline,
            }
    }
}

impl Generator {
    /// Returns a generator with `count` connections, which are opened when they are first used.
    pub fn new(url: &Url, connections: Connections, count: usize) -> Self {
        let slot = |_| Slot {
            connection: None,
            begun: Instant::now(),
        };
        Self {
            url: url.clone(),
            request: client::request(url, &url.path, connections, ""),
            connections,
            slots: (0..count).map(slot).collect(),
        }
    }

    /// Makes the generator send POST requests with this JSON.
    pub fn posting(mut self, json: &[u8]) -> Self {
        self.request = client::posting(&self.url, self.connections, json);
        self
    }

    /// Sends requests until `until`.
    ///
    /// # Errors
    /// Returns an error if the server cannot be connected to or does not answer for a minute, and
    /// after an interrupt. Any other failure of a request is counted.
    pub fn run(&mut self, until: Until) -> Result<Outcome> {
        if self.connections == Connections::Keep {
            for slot in &mut self.slots {
                if slot.connection.is_none() {
                    slot.connection = Some(Connection::open(&self.url)?);
                }
            }
        }
        let begun = Instant::now();
        let budget = match until {
            Until::Requests(count) => Budget::Requests(AtomicU64::new(count)),
            Until::Elapsed(time) => Budget::Deadline(begun + time),
        };
        let worker = Worker {
            url: &self.url,
            request: &self.request,
            connections: self.connections,
            budget: &budget,
        };
        let mut total = if let [slot] = self.slots.as_mut_slice() {
            worker.run_one(slot)?
        } else {
            let share = self.slots.len().div_ceil(THREADS_MAX).max(1);
            thread::scope(|scope| {
                let threads: Vec<_> = self
                    .slots
                    .chunks_mut(share)
                    .map(|slots| scope.spawn(|| worker.run_many(slots)))
                    .collect();
                let mut total = Outcome::default();
                for thread in threads {
                    let part = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
                    total.add(part);
                }
                anyhow::Ok(total)
            })?
        };
        total.elapsed = begun.elapsed();
        interrupt::check()?;
        Ok(total)
    }
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn fail(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }
}

/// The state that the threads of a run share.
struct Worker<'a> {
    url: &'a Url,
    request: &'a [u8],
    connections: Connections,
    budget: &'a Budget,
}

impl Worker<'_> {
    fn run_one(&self, slot: &mut Slot) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        while self.budget.take() {
            let mut finished = self.begin(slot, |_| Ok(()))?;
            while let Ok(false) = finished {
                finished = self.receive_available(slot, &mut outcome);
            }
            if let Err(error) = finished {
                slot.connection = None;
                outcome.fail(&error);
            }
        }
        Ok(outcome)
    }

    fn run_many(&self, slots: &mut [Slot]) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |connection: &Connection, index: usize| {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, connection, data, epoll::EventFlags::IN).context("epoll")
        };
        // Sends a slot's next request, if one is left.
        let begin = |slot: &mut Slot, index: usize, outcome: &mut Outcome| -> Result<bool> {
            while self.budget.take() {
                match self.begin(slot, |connection| watch(connection, index))? {
                    Ok(_) => return Ok(true),
                    Err(error) => {
                        slot.connection = None;
                        outcome.fail(&error);
                    }
                }
            }
            Ok(false)
        };
        let mut busy = 0;
        for (index, slot) in slots.iter_mut().enumerate() {
            if let Some(connection) = &slot.connection {
                watch(connection, index)?;
            }
            busy += usize::from(begin(slot, index, &mut outcome)?);
        }
        let timeout = Timespec::try_from(TIMEOUT)?;
        let mut events = Vec::with_capacity(slots.len());
        while busy > 0 {
            match epoll::wait(&epoll, spare_capacity(&mut events), Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => ensure!(
                    other? > 0,
                    "no answer from {} for a minute",
                    self.url.authority
                ),
            }
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                let slot = slots.get_mut(index).context("an event of no connection")?;
                match self.receive_available(slot, &mut outcome) {
                    Ok(false) => continue,
                    Ok(true) => {}
                    Err(error) => {
                        slot.connection = None;
                        outcome.fail(&error);
                    }
                }
                busy -= usize::from(!begin(slot, index, &mut outcome)?);
            }
        }
        Ok(outcome)
    }

    /// Sends a request, over a new connection if the slot has none, which `opened` then receives.
    /// The outer error ends the run, the inner one is the request's own.
    fn begin(
        &self,
        slot: &mut Slot,
        opened: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<Result<bool>> {
        slot.begun = Instant::now();
        let connection = match &mut slot.connection {
            Some(connection) => connection,
            none => {
                let connection = Connection::open(self.url)?;
                opened(&connection)?;
                none.insert(connection)
            }
        };
        Ok(connection.send(self.request).map(|()| false))
    }

    /// Reads once. Returns whether the answer is complete.
    fn receive_available(&self, slot: &mut Slot, outcome: &mut Outcome) -> Result<bool> {
        let connection = slot.connection.as_mut().context("no connection")?;
        let Some(response) = connection.receive_part()? else {
            return Ok(false);
        };
        let took = slot.begun.elapsed();
        if self.connections == Connections::Close || !response.keeps_connection {
            slot.connection = None;
        }
        match client::ensure_success(&response) {
            Ok(()) => outcome.latencies.push(took),
            Err(error) => outcome.fail(&error),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

    #[test]
    fn connections_share_the_requests_and_all_answers_count() {
        // A faster connection may send more than its share, up to all requests.
        let url = server(vec![vec![FINE; 40]; 5]);
        let mut generator = Generator::new(&url, Connections::Keep, 5);
        let outcome = generator.run(Until::Requests(30)).unwrap();
        assert_eq!((outcome.latencies.len(), outcome.errors), (30, 0));
        let again = generator.run(Until::Requests(10)).unwrap();
        assert_eq!(again.latencies.len(), 10);
    }

    #[test]
    fn failures_are_counted_and_the_first_is_reported() {
        for connections in [1, 3] {
            let url = server(vec![vec![BUSY; 20]; connections]);
            let mut generator = Generator::new(&url, Connections::Keep, connections);
            let outcome = generator.run(Until::Requests(6)).unwrap();
            assert_eq!((outcome.latencies.len(), outcome.errors), (0, 6));
            assert_eq!(outcome.first_error.unwrap(), "answered 503: busy");
        }
    }

    #[test]
    fn a_connection_of_its_own_for_each_request() {
        for connections in [1, 2] {
            let url = server(vec![vec![FINE]; 4]);
            let mut generator = Generator::new(&url, Connections::Close, connections);
            let outcome = generator.run(Until::Requests(4)).unwrap();
            assert_eq!((outcome.latencies.len(), outcome.errors), (4, 0));
        }
    }

    #[test]
    fn a_run_ends_on_time() {
        let url = server(vec![vec![FINE; 1_000_000]; 2]);
        let mut generator = Generator::new(&url, Connections::Keep, 2);
        let outcome = generator
            .run(Until::Elapsed(Duration::from_millis(30)))
            .unwrap();
        assert!(!outcome.latencies.is_empty());
        assert!(outcome.elapsed >= Duration::from_millis(30));
    }

    #[test]
    fn a_missing_server_ends_the_run() {
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let mut generator = Generator::new(&url, Connections::Close, 2);
        assert!(generator.run(Until::Requests(1)).is_err());
    }
}
