//! The requests of a client.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::{FAREWELL, Peer, PeerRequest};

/// A request under way.
#[derive(Debug)]
pub(in crate::server) struct ActiveRequest {
    peer: Arc<Peer>,
    number: u64,
    is_http1: bool,
}

/// A request's body that is incomplete.
#[derive(Debug)]
pub(in crate::server) struct IncomingBody {
    peer: Arc<Peer>,
    number: u64,
    is_drained: bool,
}

impl Peer {
    /// Begins a request, which is under way until the result is dropped. `head` is the size of its
    /// head in bytes.
    pub(in crate::server) fn begin(self: &Arc<Self>, is_http1: bool, head: u64) -> ActiveRequest {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.requests.insert(number, PeerRequest::default());
        state.head_since = None;
        self.in_head.store(!is_http1, Ordering::Relaxed);
        self.has_asked.store(true, Ordering::Relaxed);
        self.is_http2.store(!is_http1, Ordering::Relaxed);
        let finishing = state.finishing_since;
        if finishing.is_some_and(|since| since.elapsed() >= FAREWELL) {
            // The client had time to notice the end of the connection and continues all the same.
            self.close();
        }
        let before = self.under_way.fetch_add(1, Ordering::AcqRel);
        drop(state);
        self.consumed(if before == 0 { u64::MAX } else { head });
        ActiveRequest {
            peer: self.clone(),
            number,
            is_http1,
        }
    }
}

impl ActiveRequest {
    /// Marks the request's body as incomplete until the result is dropped.
    pub(in crate::server) fn begin_body(&self) -> IncomingBody {
        if let Some(request) = self.peer.state().requests.get_mut(&self.number) {
            request.is_receiving = true;
        }
        self.peer.receiving.fetch_add(1, Ordering::AcqRel);
        IncomingBody {
            peer: self.peer.clone(),
            number: self.number,
            is_drained: false,
        }
    }

    /// Notes that the client is sent a piece of its response.
    pub(in crate::server) fn note_piece_given(&self) {
        self.set(Some(Instant::now()));
    }

    /// Notes that the client has taken the piece.
    pub(in crate::server) fn note_piece_taken(&self) {
        self.set(None);
    }

    fn set(&self, given: Option<Instant>) {
        let mut state = self.peer.state();
        if given.is_none() {
            state.moved_at = Instant::now();
        }
        if let Some(request) = state.requests.get_mut(&self.number) {
            request.given = given;
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let peer = &self.peer;
        let mut state = peer.state();
        state.requests.remove(&self.number);
        state.idle_since = Instant::now();
        if self.is_http1 {
            // With HTTP/1, the last bytes are written after the response was produced.
            peer.is_unwritten.store(true, Ordering::Release);
        }
        peer.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl IncomingBody {
    /// Counts bytes of the body that were read.
    pub(in crate::server) fn consumed(&mut self, bytes: u64) {
        self.peer.consumed(bytes);
        if bytes > 0 {
            self.peer.state().moved_at = Instant::now();
        }
        if std::mem::take(&mut self.is_drained) {
            self.peer.drained.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that everything of the body that has arrived was read.
    pub(in crate::server) fn note_drained(&mut self) {
        if !std::mem::replace(&mut self.is_drained, true) {
            self.peer.drained.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        self.consumed(0);
        if let Some(request) = self.peer.state().requests.get_mut(&self.number) {
            request.is_receiving = false;
        }
        self.peer.receiving.fetch_sub(1, Ordering::AcqRel);
    }
}
