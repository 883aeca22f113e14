//! The order in which servers are queried for a name.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::TURN;
use super::exchange::{LookupAnswer, LookupFailure, Network};
use super::function::{Function, SILENCE};
use super::message::WireName;

/// How often a silent server is queried in one lookup.
const ROUNDS: usize = 2;

/// A server has 3 of the 7 s of a turn to answer, so that every turn reaches two servers.
const PARTS_OF_TURN: (u32, u32) = (3, 7);

/// Servers of names, in order of preference.
#[derive(Debug, Default)]
pub struct Servers(Vec<Server>);

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Until when the server comes last for all functions, because it answered nothing at all. No
    /// name without an answer sets this: its own servers may be slow, and a function could choose
    /// such a name.
    silent_until: Cell<Option<Instant>>,
}

impl Server {
    fn is_silent(&self) -> bool {
        self.silent_until
            .get()
            .is_some_and(|until| until > Instant::now())
    }

    /// Notes whether the server answered anything. Silence counts only after a full turn's wait, so
    /// that a function with short turns cannot cause a slow server to come last for all functions.
    fn note(&self, outcome: &Result<LookupAnswer, LookupFailure>, turn: Duration) {
        match outcome {
            Err(LookupFailure::SilentOnAll) if turn < TURN => {}
            Err(LookupFailure::SilentOnAll) => {
                self.silent_until.set(Some(Instant::now() + SILENCE))
            }
            _ => self.silent_until.set(None),
        }
    }
}

impl Servers {
    /// Returns servers at these addresses.
    pub fn new(addresses: &[SocketAddr]) -> Self {
        let servers = addresses.iter().map(|address| Server {
            address: *address,
            silent_until: Cell::default(),
        });
        Self(servers.collect())
    }

    /// Queries servers in their order until one answers conclusively. Servers come last that were
    /// silent in the last 30 s, about this name to this function or about everything.
    pub async fn find<N: Network>(
        &self,
        network: &N,
        name: &str,
        wire: &WireName,
        function: &Function,
        turn: Duration,
    ) -> Result<LookupAnswer, LookupFailure> {
        let deadline = Instant::now() + turn;
        let (parts, of) = PARTS_OF_TURN;
        let most = turn * parts / of;
        let is_late =
            |(at, server): &(usize, &Server)| server.is_silent() || function.is_silent(name, *at);
        let servers = self.0.iter().enumerate();
        let (late, first): (Vec<_>, Vec<_>) = servers.partition(is_late);
        let mut next = [first, late].concat();
        let mut why = None;
        for _ in 0..ROUNDS {
            let mut silent = Vec::new();
            for (at, server) in next {
                let wait = most.min(deadline.saturating_duration_since(Instant::now()));
                if wait.is_zero() {
                    return Err(why.unwrap_or(LookupFailure::SilentOnName));
                }
                let outcome = network.ask(server.address, wire, wait).await;
                if wait == most {
                    server.note(&outcome, turn);
                    let is_silent = outcome.as_ref().is_err_and(|unfound| unfound.is_silent());
                    function.note_server(name, at, is_silent);
                }
                let unfound = match outcome {
                    Ok(found) => return Ok(found),
                    Err(known @ LookupFailure::Known(_)) => return Err(known),
                    Err(unfound) => unfound,
                };
                if unfound.is_silent() {
                    silent.push((at, server));
                }
                why = Some(why.map_or(unfound, |why: LookupFailure| why.or(unfound)));
            }
            next = silent;
        }
        Err(why.unwrap_or(LookupFailure::Failed(None)))
    }
}
