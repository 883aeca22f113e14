//! Waiting for a request's body before resources are reserved for it.
//!
//! Promising a body costs a client next to nothing, but a slot and a microVM are expensive. So both
//! are taken once the client has sent all of the body, or a good part of it. A function can still
//! answer before its client has sent anything, or while it sends. After a moment the request
//! proceeds as it is, if no other request wants the slot.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use faasw_pool::{Account, ClientError, Lease, RequestBody};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

/// Bytes of a body that show that more will follow.
const ENOUGH: usize = 64 << 10;
/// Maximum bytes of a body without a length that are held in memory to find its length: half of
/// what one connection may hold by default ([`crate::Limits::undelivered_connection`]).
const LENGTH_MAX: u64 = 1 << 20;
/// Minimum bytes of a piece of a body that is kept as it arrived.
const LARGE_PIECE_BYTES: usize = 4 << 10;
/// Bytes by which memory for smaller pieces is reserved: at least the size of a piece.
const LEASE_STEP_BYTES: usize = 8 << 10;
/// Time to wait for a body while there are free slots.
const EARLY_START_DELAY: Duration = Duration::from_millis(50);

/// A body of which a part, or all, has arrived.
pub(crate) struct GatheredBody {
    /// The whole body, including the part that has not arrived yet.
    pub(crate) body: RequestBody,
    /// Whether the request proceeds although little of its body has arrived.
    pub(crate) is_early: bool,
    /// Length of the body in bytes, if all of it has arrived.
    pub(crate) length: Option<u64>,
}

/// The part of a body that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatherGoal {
    /// Enough of the body to show that the client sends it.
    EnoughSigns,
    /// The body's end, for its length. Programs in CGI style read it in `CONTENT_LENGTH` (RFC 3875,
    /// section 4.1.2), and would find the body empty without it.
    Length,
}

/// The reason why a body was not gathered.
pub(crate) enum GatherError {
    /// The body broke off.
    Client(ClientError),
    /// The body is longer than the bytes that are held to find its length.
    LengthUnknown {
        /// The most bytes that are held.
        limit: u64,
        /// The bytes of the body that the client has not sent yet.
        rest: RequestBody,
    },
    /// Other requests hold the memory that is needed to find the body's length.
    NoRoom {
        /// The bytes of the body that the client has not sent yet.
        rest: RequestBody,
    },
}

impl From<ClientError> for GatherError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Waits until enough of a body, or all of it, has arrived. Also returns when a moment has passed
/// while `has_room` allows early requests. The bytes that are held meanwhile count for `account`.
/// If the length is wanted, only the end of the body is enough.
///
/// # Errors
/// Returns an error if the body breaks off, and if its length is wanted and cannot be found.
pub(crate) async fn gather(
    mut body: RequestBody,
    account: &Account,
    wanted: GatherGoal,
    has_room: impl Fn() -> bool,
) -> Result<GatheredBody, GatherError> {
    if body.is_end_stream() {
        return Ok(GatheredBody {
            body,
            is_early: false,
            length: Some(0),
        });
    }
    let enough = match wanted {
        GatherGoal::EnoughSigns => ENOUGH,
        GatherGoal::Length => usize::MAX,
    };
    let mut taken = ReceivedPrefix::default();
    let mut is_early = false;
    let mut has_ended = false;
    let mut moment_ends = Instant::now() + EARLY_START_DELAY;
    while taken.bytes < enough && !body.is_end_stream() {
        if wanted == GatherGoal::Length {
            let limit = account.connection_limit().min(LENGTH_MAX);
            if taken.bytes as u64 > limit || taken.is_full && limit < LENGTH_MAX {
                return Err(GatherError::LengthUnknown { limit, rest: body });
            }
            if taken.is_full {
                return Err(GatherError::NoRoom { rest: body });
            }
        }
        let next = async {
            if taken.is_full {
                // The rest stays with its client.
                std::future::pending().await
            } else {
                body.frame().await
            }
        };
        let Ok(frame) = timeout_at(moment_ends, next).await else {
            is_early = wanted == GatherGoal::EnoughSigns && has_room();
            if is_early {
                break;
            }
            moment_ends = Instant::now() + EARLY_START_DELAY;
            continue;
        };
        let Some(frame) = frame.transpose()? else {
            has_ended = true;
            break;
        };
        match frame.into_data() {
            Ok(data) => taken.data(data, account),
            Err(trailers) => {
                // Trailers are the end.
                taken.flush();
                taken.held.push_back(trailers);
                has_ended = true;
                break;
            }
        }
    }
    taken.flush();
    let length = (has_ended || body.is_end_stream()).then_some(taken.bytes as u64);
    let body = if taken.held.is_empty() && !has_ended {
        body
    } else {
        // A body that has ended must not be polled again.
        RequestBody::new(PrefixedBody {
            held: taken.held,
            body: (!has_ended).then_some(body),
        })
    };
    Ok(GatheredBody {
        body,
        is_early,
        length,
    })
}

/// The part of a body that has arrived. Small pieces are joined: each would take far more memory
/// than it has bytes, and may keep a whole read buffer in memory.
#[derive(Default)]
struct ReceivedPrefix {
    held: VecDeque<Frame<Bytes>>,
    small: BytesMut,
    /// The reservation for joined pieces, and its size in bytes.
    room: Option<Lease>,
    room_bytes: usize,
    bytes: usize,
    /// Whether a reservation failed.
    is_full: bool,
}

impl ReceivedPrefix {
    fn data(&mut self, data: Bytes, account: &Account) {
        self.bytes += data.len();
        if data.len() >= LARGE_PIECE_BYTES {
            self.flush();
            let room = account.try_lease(data.len() as u64);
            self.is_full |= room.is_none();
            let data = match room {
                Some(room) => room.hold(data),
                None => data,
            };
            self.held.push_back(Frame::data(data));
            return;
        }
        self.small.extend_from_slice(&data);
        if self.small.len() > self.room_bytes {
            match account.try_lease(LEASE_STEP_BYTES as u64) {
                Some(more) => {
                    self.room_bytes += LEASE_STEP_BYTES;
                    match &mut self.room {
                        Some(room) => room.join(more),
                        none => *none = Some(more),
                    }
                }
                None => self.is_full = true,
            }
        }
    }

    /// Joins the small pieces to one.
    fn flush(&mut self) {
        if self.small.is_empty() {
            return;
        }
        let bytes = self.small.split().freeze();
        let bytes = match self.room.take() {
            Some(room) => room.hold(bytes),
            None => bytes,
        };
        self.room_bytes = 0;
        self.held.push_back(Frame::data(bytes));
    }
}

/// A body with the part that was taken already.
struct PrefixedBody {
    held: VecDeque<Frame<Bytes>>,
    /// The rest, if more is to come.
    body: Option<RequestBody>,
}

impl http_body::Body for PrefixedBody {
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        match (self.held.pop_front(), &mut self.body) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Some(body)) => Pin::new(body).poll_frame(context),
            (None, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.body.as_ref().is_none_or(RequestBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_pool::{Backlog, BacklogLimits};
    use http_body_util::{Channel, Full};

    fn whole(bytes: &'static [u8]) -> RequestBody {
        RequestBody::new(Full::new(Bytes::from_static(bytes)).map_err(|never| match never {}))
    }

    async fn gathered(body: RequestBody, has_room: bool) -> GatheredBody {
        let gathered = gather(body, &Account::default(), GatherGoal::EnoughSigns, || {
            has_room
        })
        .await;
        gathered.ok().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_body_is_gathered_at_once() {
        let begun = Instant::now();
        for bytes in [&b""[..], b"abc"] {
            let GatheredBody { body, is_early, .. } = gathered(whole(bytes), true).await;
            assert!(!is_early);
            assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_body_is_awaited_while_no_slot_is_free() {
        let (mut sender, body) = Channel::<Bytes, ClientError>::new(4);
        sender.send_data(Bytes::from_static(b"x")).await.unwrap();
        let GatheredBody { body, is_early, .. } = gathered(RequestBody::new(body), true).await;
        assert!(is_early);
        let account = Account::default();
        let waiting = gather(body, &account, GatherGoal::EnoughSigns, || false);
        let waiting = tokio::time::timeout(EARLY_START_DELAY * 20, waiting);
        assert!(waiting.await.is_err());
        drop(sender);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_part_of_a_body_suffices_and_no_byte_is_lost() {
        let (mut sender, body) = Channel::<Bytes, ClientError>::new(100);
        let part = Bytes::from(vec![b'x'; 10_000]);
        for _ in 0..9 {
            sender.send_data(part.clone()).await.unwrap();
        }
        let GatheredBody { body, is_early, .. } = gathered(RequestBody::new(body), false).await;
        assert!(!is_early);
        let mut fields = http::HeaderMap::new();
        fields.insert("x-t", http::HeaderValue::from_static("1"));
        sender.send_trailers(fields).await.unwrap();
        drop(sender);
        let all = body.collect().await.unwrap();
        assert!(all.trailers().is_some());
        assert_eq!(all.to_bytes().len(), 90_000);
    }

    /// Returns a body of `parts` parts of 10,000 bytes, each of which takes longer than a moment to
    /// arrive, and the task that sends it.
    fn sent_slowly(parts: usize) -> (RequestBody, tokio::task::JoinHandle<()>) {
        let (mut sender, body) = Channel::<Bytes, ClientError>::new(1);
        let sending = tokio::spawn(async move {
            for _ in 0..parts {
                tokio::time::sleep(EARLY_START_DELAY * 2).await;
                let part = Bytes::from(vec![b'x'; 10_000]);
                // The receiver of a rejected body is gone.
                let _ = sender.send_data(part).await;
            }
        });
        (RequestBody::new(body), sending)
    }

    #[tokio::test(start_paused = true)]
    async fn a_required_length_is_awaited() {
        let account = Account::default();
        // 104 parts, which are 1,040,000 bytes, are the most that fit into a MiB.
        for (parts, length) in [(0, 0), (9, 90_000), (104, 1_040_000)] {
            let (body, sending) = sent_slowly(parts);
            let gathering = gather(body, &account, GatherGoal::Length, || true);
            let gathered = gathering.await.ok().unwrap();
            assert_eq!((gathered.length, gathered.is_early), (Some(length), false));
            let all = gathered.body.collect().await.unwrap().to_bytes();
            assert_eq!(all.len(), parts * 10_000);
            sending.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_with_required_length_is_rejected_beyond_the_limit() {
        let (body, sending) = sent_slowly(120);
        let account = Account::default();
        let gathering = gather(body, &account, GatherGoal::Length, || true);
        let Err(GatherError::LengthUnknown { limit, rest }) = gathering.await else {
            panic!("a body of 1,200,000 bytes is held");
        };
        assert_eq!(limit, LENGTH_MAX);
        // The rest can still be read, for example to let the client receive the response.
        let rest = rest.collect().await.unwrap().to_bytes();
        assert_eq!(rest.len(), 1_200_000 - 1_050_000);
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lower_connection_limit_lowers_the_body_limit() {
        let (sender, body, account) = without_room().await;
        let gathering = gather(body, &account, GatherGoal::Length, || true);
        let Err(GatherError::LengthUnknown { limit, .. }) = gathering.await else {
            panic!("more is held than the connection may hold");
        };
        assert_eq!(limit, 2 * LARGE_PIECE_BYTES as u64);
        drop(sender);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_with_required_length_is_rejected_if_the_memory_is_in_use() {
        let backlog = Backlog::new(BacklogLimits::default());
        let account = Account::new(backlog.function(), backlog.connection());
        // The lease stands for another request that holds all that the connection may hold.
        let held = account.try_lease(BacklogLimits::default().connection);
        assert!(held.is_some());
        let (body, sending) = sent_slowly(9);
        let gathering = gather(body, &account, GatherGoal::Length, || true);
        assert!(matches!(gathering.await, Err(GatherError::NoRoom { .. })));
        sending.await.unwrap();
    }

    /// Returns nine large pieces, and an account with capacity for two.
    async fn without_room() -> (
        http_body_util::channel::Sender<Bytes, ClientError>,
        RequestBody,
        Account,
    ) {
        let (mut sender, body) = Channel::<Bytes, ClientError>::new(9);
        for _ in 0..9 {
            let part = Bytes::from(vec![b'x'; LARGE_PIECE_BYTES]);
            sender.send_data(part).await.unwrap();
        }
        let limits = BacklogLimits {
            connection: 2 * LARGE_PIECE_BYTES as u64,
            ..BacklogLimits::default()
        };
        let backlog = Backlog::new(limits);
        let account = Account::new(backlog.function(), backlog.connection());
        (sender, RequestBody::new(body), account)
    }

    #[tokio::test(start_paused = true)]
    async fn small_pieces_are_joined_to_bound_memory() {
        let (mut sender, body) = Channel::<Bytes, ClientError>::new(1);
        let sending = tokio::spawn(async move {
            for place in 0..20_000_u32 {
                let crumb = Bytes::copy_from_slice(&[place as u8]);
                sender.send_data(crumb).await.unwrap();
            }
            sender
        });
        let backlog = Backlog::new(BacklogLimits::default());
        let account = Account::new(backlog.function(), backlog.connection());
        let gathering = gather(
            RequestBody::new(body),
            &account,
            GatherGoal::EnoughSigns,
            || true,
        );
        let GatheredBody {
            mut body, is_early, ..
        } = gathering.await.ok().unwrap();
        assert!(is_early);
        assert!((20_000..=3 * LEASE_STEP_BYTES as u64).contains(&backlog.held()));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), 20_000, "in one piece");
        assert!(
            first
                .iter()
                .enumerate()
                .all(|(place, byte)| *byte == place as u8)
        );
        drop(first);
        assert_eq!(backlog.held(), 0);
        drop(sending);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_memory_stays_with_its_client_until_a_slot_is_free() {
        let (mut sender, body, account) = without_room().await;
        let mut gathering =
            std::pin::pin!(gather(body, &account, GatherGoal::EnoughSigns, || false));
        let waiting = tokio::time::timeout(EARLY_START_DELAY * 20, &mut gathering);
        assert!(waiting.await.is_err());
        assert_eq!(sender.capacity(), 3, "three were taken");
    }

    #[tokio::test]
    async fn an_ended_body_is_not_polled_again() {
        // Polling it again would panic.
        for bytes in [&b""[..], b"abc"] {
            let (mut sender, body) = Channel::<Bytes, ClientError>::new(4);
            if !bytes.is_empty() {
                let bytes = Bytes::from_static(bytes);
                sender.send_data(bytes).await.unwrap();
            }
            drop(sender);
            let GatheredBody { body, is_early, .. } = gathered(RequestBody::new(body), true).await;
            assert!(!is_early);
            assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
        }
    }
}
