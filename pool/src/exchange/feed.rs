//! The request's way in: what the client sent goes into the ring as far as there is
//! room, and the guest is woken when what it waits for is there.

use std::time::Duration;

use bytes::Buf;
use faasw_abi::mailbox::{REQUEST_BODY, RESPONSE_BODY, WAIT_LOG, WAIT_REQUEST, WAIT_ROOM};
use tokio::time::Instant;

use super::body::Received;
use super::following::Exchange;
use crate::error::{ClientError, InvokeError};
use crate::instances::AFTER_END;
use crate::sink::Served;

/// Time after which a request is no longer one of the many that are done at once.
const YOUNG: Duration = Duration::from_millis(5);

/// CPU time that stopping may take, even where the limit is used up.
const STOPPING: Duration = Duration::from_millis(1);

impl Exchange {
    /// Looks at what the guest wrote, and gives it what it waits for.
    pub(super) fn look(&mut self) -> Result<(), InvokeError> {
        let before = (self.guest.response_written, self.guest.response_end);
        self.guest = self.instance.mailbox.guest()?;
        let records = self.instance.mailbox.take_log(&self.guest)?;
        self.rate_limit.count_look(&records);
        self.log.take(&records);
        if before != (self.guest.response_written, self.guest.response_end) {
            if before.1 != 0 {
                return Err(InvokeError::GuestFailed(
                    "it went on with a response that it had ended".to_owned(),
                ));
            }
            self.clock.guest = Instant::now();
        }
        if self.guest.outcome != 0 && !self.is_over {
            self.is_over = true;
            self.limit_what_follows()?;
        }
        self.guest_waits = self.guest.wait_for;
        self.note_what_client_owes()?;
        self.feed()?;
        self.wake_if_served()
    }

    /// A client that has sent all that it was asked for gets its whole time again when
    /// the guest asks for more: once, however often the guest says so.
    fn note_what_client_owes(&mut self) -> Result<(), InvokeError> {
        let is_asked =
            self.guest_waits & WAIT_REQUEST != 0 && !self.end_told && self.held.is_empty();
        let taken = Some(self.guest.request_read);
        if is_asked
            && self.asked_behind != taken
            && self.instance.mailbox.request_room(&self.guest)? as u64 == REQUEST_BODY.size
        {
            self.asked_behind = taken;
            self.clock.client = Instant::now();
        }
        Ok(())
    }

    /// Wakes the guest when something that it waits for is there.
    pub(super) fn wake_if_served(&mut self) -> Result<(), InvokeError> {
        let has_request = || -> Result<bool, InvokeError> {
            let room = self.instance.mailbox.request_room(&self.guest)? as u64;
            Ok(self.end_told || room < REQUEST_BODY.size)
        };
        let has_room = || -> Result<bool, InvokeError> {
            Ok(self.instance.mailbox.response_waiting(&self.guest)? < RESPONSE_BODY.size)
        };
        let served = self.guest_waits & WAIT_LOG != 0
            || self.guest_waits & WAIT_REQUEST != 0 && has_request()?
            || self.guest_waits & WAIT_ROOM != 0 && has_room()?;
        if served {
            self.guest_waits = 0;
            self.instance.shell.wake()?;
        }
        Ok(())
    }

    /// Whether the next frame of the request should be taken from the client.
    pub(super) fn wants_more(&self) -> bool {
        self.held.is_empty() && !self.incoming.has_ended()
    }

    /// Takes what the client sent.
    pub(super) fn receive(
        &mut self,
        received: Result<Received, ClientError>,
    ) -> Result<(), InvokeError> {
        match received? {
            Received::Data(data) => self.held = data,
            Received::End(trailers) => self.ending = Some(trailers),
        }
        self.clock.client = Instant::now();
        self.feed()
    }

    /// Puts what was received into the ring, as far as there is room.
    pub(super) fn feed(&mut self) -> Result<(), InvokeError> {
        if !self.held.is_empty() {
            let put = self.instance.mailbox.put_body(&self.guest, &self.held)?;
            if put > 0 {
                self.held.advance(put);
                self.clock.fed = Instant::now();
            }
        }
        if self.held.is_empty()
            && !self.end_told
            && let Some(trailers) = &self.ending
        {
            self.instance.mailbox.end_request(trailers)?;
            self.end_told = true;
        }
        Ok(())
    }

    /// The guest has said that it is done: all that it has to do is to stop.
    fn limit_what_follows(&mut self) -> Result<(), InvokeError> {
        let (now, age) = (Instant::now(), self.clock.age());
        // A process cannot have used more CPU time than has passed, where nothing was
        // forked before. So most are done before anybody has to ask.
        let is_young = self.timing.served == Served::Parked && age < YOUNG;
        let (cpu, due) = if is_young && self.limits.cpu >= YOUNG + AFTER_END {
            (AFTER_END, now + AFTER_END - age)
        } else {
            let used = self.instance.cpu_time()?;
            let left = self.limits.cpu.saturating_sub(used);
            let left = left.clamp(STOPPING, AFTER_END);
            (used + left, now + left)
        };
        (self.limits.cpu, self.clock.cpu) = (cpu, due);
        Ok(())
    }
}
