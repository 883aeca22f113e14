//! `poll_oneoff`: waits for clocks, for bytes on standard input, and for room on standard output.
//! Standard error and files are always ready.

use alloc::vec::Vec;

use super::clock::Clock;
use super::errno::Errno;
use super::memory::{Memory, functions, item};
use crate::descriptors::{Descriptor, Stream};
use crate::platform::{Incoming, Platform};
use crate::state::State;
use faasw_abi::channel::{Channel, Waits};

/// Maximum number of subscriptions in one call; there are two descriptors to wait for.
const MAX_SUBSCRIPTIONS: u32 = 1024;

/// Bytes of a subscription and of an event.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

/// `eventtype`s.
const CLOCK: u8 = 0;
const FD_READ: u8 = 1;
const FD_WRITE: u8 = 2;

/// Bit of `subclockflags`: the timeout is a time, not a duration.
const ABSOLUTE: u16 = 1;

/// An event to wait for.
struct Subscription {
    userdata: u64,
    kind: u8,
    until: Until,
}

/// The condition of an event.
enum Until {
    /// The event occurs at once, with this error number (0 for none).
    Now(u16),
    /// There are bytes of the request body, or it is over.
    Request,
    /// The response has space.
    Room,
    /// The monotonic clock reaches this value, in nanoseconds.
    At(u64),
}

impl Subscription {
    fn read<P: Platform>(memory: &Memory<'_>, state: &State<P>, at: u32) -> Result<Self, Errno> {
        // All of the subscription must be in memory, including padding.
        memory.bytes(at, SUBSCRIPTION)?;
        let field = |offset: u32| at.checked_add(offset).ok_or(Errno::Fault);
        let [kind] = memory.read(field(8)?)?;
        let id = memory.read_u32(field(16)?)?;
        let until = match kind {
            CLOCK => {
                let timeout = u64::from_le_bytes(memory.read(field(24)?)?);
                let flags = u16::from_le_bytes(memory.read(field(40)?)?);
                match deadline(&state.platform, id, timeout, flags & ABSOLUTE != 0) {
                    Ok(deadline) => Until::At(deadline),
                    Err(errno) => Until::Now(errno as u16),
                }
            }
            FD_READ | FD_WRITE => match (state.descriptors.get(id), kind) {
                (Some(Descriptor::Stream(Stream::Stdin)), FD_READ) => Until::Request,
                (Some(Descriptor::Stream(Stream::Stdout)), FD_WRITE) => Until::Room,
                (Some(Descriptor::Stream(Stream::Stderr)), FD_WRITE)
                | (Some(Descriptor::File(_)), _) => Until::Now(0),
                _ => Until::Now(Errno::Badf as u16),
            },
            _ => return Err(Errno::Inval),
        };
        Ok(Self {
            userdata: u64::from_le_bytes(memory.read(at)?),
            kind,
            until,
        })
    }

    /// Returns the event, if it has occurred by `now`.
    fn event<P: Platform>(&self, state: &State<P>, now: u64) -> Option<[u64; 4]> {
        let (happened, error) = match self.until {
            Until::Now(error) => (true, error),
            Until::Request => {
                let incoming = state.platform.incoming(Channel::INVOCATION);
                (incoming != Incoming::Pending, 0)
            }
            Until::Room => (state.stdout_room() > 0, 0),
            Until::At(deadline) => (deadline <= now, 0),
        };
        if !happened {
            return None;
        }
        // The parts are userdata, error and type; for a descriptor the number of bytes and flags
        // follow. That number is not known, and 0 stands for that.
        let head = u64::from(error) | u64::from(self.kind) << 16;
        Some([self.userdata, head, 0, 0])
    }
}

/// Returns the deadline on the monotonic clock for a timeout.
fn deadline(platform: &impl Platform, id: u32, timeout: u64, absolute: bool) -> Result<u64, Errno> {
    let clock = Clock::from_id(id)?;
    let left = if absolute {
        timeout.saturating_sub(clock.now(platform)?)
    } else {
        timeout
    };
    Ok(platform.monotonic().saturating_add(left))
}

/// Waits for at least one event, and returns all that have occurred.
fn wait<P: Platform>(
    memory: &Memory<'_>,
    state: &mut State<P>,
    subscriptions_at: u32,
    count: u32,
) -> Result<Vec<[u64; 4]>, Errno> {
    if count == 0 || count > MAX_SUBSCRIPTIONS {
        return Err(Errno::Inval);
    }
    let subscriptions = (0..count)
        .map(|index| {
            Subscription::read(memory, state, item(subscriptions_at, index, SUBSCRIPTION)?)
        })
        .collect::<Result<Vec<_>, _>>()?;
    loop {
        let now = state.platform.monotonic();
        let events: Vec<_> = subscriptions
            .iter()
            .filter_map(|subscription| subscription.event(state, now))
            .collect();
        if !events.is_empty() {
            return Ok(events);
        }
        let deadlines = subscriptions.iter().filter_map(|one| match one.until {
            Until::At(deadline) => Some(deadline),
            _ => None,
        });
        let waits = subscriptions.iter().map(|one| match one.until {
            Until::Request => Waits::bytes(Channel::INVOCATION),
            Until::Room => Waits::room(Channel::INVOCATION),
            Until::Now(_) | Until::At(_) => Waits::default(),
        });
        let waits = waits.fold(Waits::default(), Waits::and);
        state.platform.wait(waits, deadlines.min());
    }
}

functions! {
    fn poll_oneoff(memory, state; subscriptions: u32, events: u32, count: u32, happened: u32) {
        let found = wait(memory, state, subscriptions, count)?;
        for (index, event) in (0..).zip(&found) {
            memory.write_u64s(item(events, index, EVENT)?, *event)?;
        }
        Ok(memory.write_u32(happened, found.len().try_into()?)?)
    }
}
