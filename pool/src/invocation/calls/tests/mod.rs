mod looks;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

use bytes::Bytes;
use faasw_abi::channel::{CALLS, ChannelKind, ChannelWords, HEAD_MAX, TAIL_MAX};
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail};
use faasw_abi::wire::ResponseHead;
use zerocopy::FromZeros as _;

use super::super::outbound::{AnswerPart, OutgoingCall, OutgoingRequest};
use super::*;

/// Answers each request with the same parts, takes bodies in pieces of this size, and notes the
/// requests.
#[derive(Debug, Default)]
struct Scripted {
    parts: Vec<AnswerPart>,
    room: usize,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    begun: Mutex<Vec<OutgoingRequest>>,
    body: Mutex<Vec<u8>>,
    tail: Mutex<Option<Vec<u8>>>,
    under_way: AtomicUsize,
}

struct Playing {
    parts: VecDeque<AnswerPart>,
    room: usize,
    seen: Arc<Seen>,
}

impl Outbound for Scripted {
    fn begin(&self, request: OutgoingRequest) -> Box<dyn OutgoingCall> {
        self.seen.begun.lock().unwrap().push(request);
        self.seen.under_way.fetch_add(1, Ordering::SeqCst);
        Box::new(Playing {
            parts: self.parts.clone().into(),
            room: self.room,
            seen: self.seen.clone(),
        })
    }
}

impl OutgoingCall for Playing {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<usize> {
        match self.room {
            0 => Poll::Pending,
            room => Poll::Ready(room),
        }
    }

    fn send(&mut self, body: Bytes) {
        assert!(body.len() <= self.room);
        self.seen.body.lock().unwrap().extend_from_slice(&body);
    }

    fn end(&mut self, tail: Vec<u8>) {
        assert!(self.seen.tail.lock().unwrap().replace(tail).is_none());
    }

    fn poll_answer(&mut self, _: &mut Context<'_>) -> Poll<AnswerPart> {
        self.parts.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.seen.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The guest's side of a mailbox, with one channel.
struct Guest {
    mailbox: Mailbox,
    calls: Option<Calls>,
    words: GuestWords,
    seen: Arc<Seen>,
    /// The bytes of the channel that were read in this turn.
    got: Vec<u8>,
}

fn channel() -> Channel {
    ChannelKind::Call.channel()
}

fn request() -> OutgoingHead {
    OutgoingHead {
        method: b"POST".to_vec(),
        ..OutgoingHead::default()
    }
}

fn ok() -> Bytes {
    let head = ResponseHead {
        status: 200,
        headers: Vec::new(),
    };
    Answer::Response(head).encode().into()
}

impl Guest {
    fn with(outbound: Scripted) -> Self {
        let mut mailbox = Mailbox::new().unwrap();
        mailbox
            .open(ChannelKind::Invocation, b"head", true, false)
            .unwrap();
        mailbox.open_beside(false, None, CALLS).unwrap();
        Self {
            mailbox,
            seen: outbound.seen.clone(),
            calls: Some(Calls::new(Arc::new(outbound), CALLS)),
            words: GuestWords {
                wait_nanoseconds: u64::MAX,
                ..GuestWords::new_zeroed()
            },
            got: Vec::new(),
        }
    }

    fn told(&mut self) -> &mut ChannelWords {
        &mut self.words.channels[channel()]
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = self.told().written;
        self.mailbox
            .put_ring(channel().to_host(), at, bytes)
            .unwrap();
        self.told().written += bytes.len() as u64;
    }

    fn begin(&mut self, is_whole: bool) -> Result<u64, InvokeError> {
        let head = request().encode();
        self.put(&head);
        self.told().end = u32::from(is_whole);
        self.told().head = head.len() as u32;
        self.look()
    }

    /// Has the node look. Returns how many requests were begun.
    fn look(&mut self) -> Result<u64, InvokeError> {
        self.work().map(|work| work.begun)
    }

    fn work(&mut self) -> Result<CallWork, InvokeError> {
        let (calls, mut counted) = (self.calls.as_mut().unwrap(), CallWork::default());
        calls.look(&mut self.mailbox, &self.words, |work| {
            counted = work;
            None
        })?;
        Ok(counted)
    }

    /// Sends a head on each channel, without ringing.
    fn put_on_all(&mut self, head: &OutgoingHead) {
        let bytes = head.encode();
        for channel in Channel::calls() {
            let ring = channel.to_host();
            self.mailbox.put_ring(ring, 0, &bytes).unwrap();
            let told = &mut self.words.channels[channel];
            (told.written, told.head, told.end) = (bytes.len() as u64, bytes.len() as u32, 1);
        }
    }

    /// Processes all events that are there, and reads what arrives. Returns the tail of the answer
    /// if it has ended.
    async fn goes_on(&mut self) -> Option<Vec<u8>> {
        loop {
            let next = next(&mut self.calls);
            let news = tokio::select! {
                biased;
                news = next => news,
                () = std::future::ready(()) => break,
            };
            let calls = self.calls.as_mut().unwrap();
            calls
                .handle_event(news, &mut self.mailbox, &self.words)
                .unwrap();
            self.take();
        }
        let said = self.mailbox.host_words.channels[channel()];
        let tail = said.tail()?;
        let ring = channel().to_guest();
        let tail = self.mailbox.copy_ring(ring, said.written, tail as usize);
        Some(tail.unwrap())
    }

    /// Reads everything there is, and everything that gets room by that.
    fn take(&mut self) {
        loop {
            let written = self.mailbox.host_words.channels[channel()].written;
            let read = self.told().read;
            if read == written {
                return;
            }
            let (ring, count) = (channel().to_guest(), (written - read) as usize);
            self.got
                .extend(self.mailbox.copy_ring(ring, read, count).unwrap());
            self.told().read = written;
            self.look().unwrap();
            let calls = self.calls.as_mut().unwrap();
            calls.feed(&mut self.mailbox, &self.words).unwrap();
        }
    }

    fn let_go(&mut self) -> Result<u64, InvokeError> {
        *self.told() = ChannelWords {
            turn: self.told().turn + 1,
            ..ChannelWords::default()
        };
        self.got.clear();
        self.look()
    }

    fn under_way(&self) -> usize {
        self.seen.under_way.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_request_and_its_answer_pass_turn_by_turn() {
    let body = Bytes::from(vec![7; 300_000]);
    let mut guest = Guest::with(Scripted {
        parts: vec![
            AnswerPart::Head(ok()),
            AnswerPart::Data(body.clone()),
            AnswerPart::End(
                Tail::Trailers(vec![(b"a".into(), b"b".into())])
                    .encode()
                    .into(),
            ),
        ],
        room: 1000,
        ..Scripted::default()
    });
    for turn in 0..3 {
        assert_eq!(guest.begin(false).unwrap(), 1);
        assert_eq!(guest.under_way(), 1);
        guest.put(b"a body");
        guest.look().unwrap();
        let end = Tail::Trailers(Vec::new()).encode();
        guest.told().end = ChannelWords::end_with(end.len() as u32);
        guest.look().unwrap();
        let tail = guest.goes_on().await.unwrap();
        assert!(matches!(Tail::decode(&tail), Ok(Tail::Trailers(fields)) if fields.len() == 1));
        let (head, rest) = guest.got.split_at(ok().len());
        assert_eq!((head, rest.len()), (&ok()[..], body.len()));
        // The answer is complete, so the request is no longer under way.
        assert_eq!(guest.under_way(), 0);
        assert_eq!(*guest.seen.body.lock().unwrap(), b"a body".repeat(turn + 1));
        guest.seen.tail.lock().unwrap().take();
        assert_eq!(guest.let_go().unwrap(), 0);
        let said = guest.mailbox.host_words.channels[channel()];
        assert_eq!(said.turn, turn as u64 + 1);
        assert!(said.is_untouched());
    }
    let begun = guest.seen.begun.lock().unwrap();
    assert!(
        begun
            .iter()
            .all(|one| !one.is_whole && one.head == request())
    );
}

#[tokio::test]
async fn a_request_without_a_body_is_announced_as_complete() {
    let mut guest = Guest::with(Scripted::default());
    guest.begin(true).unwrap();
    guest.goes_on().await;
    assert!(guest.seen.begun.lock().unwrap()[0].is_whole);
    assert_eq!(*guest.seen.tail.lock().unwrap(), None);
}

#[tokio::test]
async fn a_dropped_call_ends_at_once_and_its_turn_is_taken_when_the_words_are_zero() {
    let mut guest = Guest::with(Scripted {
        parts: vec![AnswerPart::Head(ok())],
        ..Scripted::default()
    });
    guest.begin(false).unwrap();
    guest.goes_on().await;
    // The node looks while the guest drops the request.
    let whole = *guest.told();
    guest.told().turn += 1;
    guest.look().unwrap();
    assert_eq!(guest.under_way(), 0);
    assert_eq!(guest.mailbox.turn(channel()), 0);
    guest.told().written = 0;
    guest.look().unwrap();
    assert_eq!(guest.mailbox.turn(channel()), 0);
    let turn = guest.told().turn;
    *guest.told() = ChannelWords {
        turn,
        ..ChannelWords::default()
    };
    guest.words.wait_for = Waits::room(channel()).word();
    guest.look().unwrap();
    assert_eq!(guest.mailbox.turn(channel()), 1);
    // A guest that waits for a free channel is woken.
    let calls = guest.calls.as_ref().unwrap();
    assert!(calls.is_served(&guest.mailbox, &guest.words).unwrap());
    assert!(!calls.awaits_answers());
    // The next turn is like the first.
    guest.words.wait_for = 0;
    guest.begin(false).unwrap();
    assert_eq!(guest.under_way(), 1);
    assert_eq!(guest.told().head, whole.head);
}

#[tokio::test]
async fn impossible_turns_end_the_guest() {
    // Two turns ahead; one ahead, and back.
    let mut guest = Guest::with(Scripted::default());
    guest.told().turn = 2;
    assert!(guest.look().is_err());
    let mut guest = Guest::with(Scripted::default());
    guest.begin(false).unwrap();
    guest.told().turn = 1;
    guest.look().unwrap();
    guest.told().turn = 0;
    assert!(guest.look().is_err());
    let mut guest = Guest::with(Scripted::default());
    guest.let_go().unwrap();
    guest.told().turn = 0;
    assert!(guest.look().is_err());
    let mut guest = Guest::with(Scripted::default());
    guest.told().turn = u64::MAX;
    assert!(guest.look().is_err());
}

#[tokio::test]
async fn a_guest_that_lies_about_a_request_is_ended() {
    type Lie = fn(&mut Guest);
    let lies: [(&str, Lie); 7] = [
        ("more than the ring", |guest| guest.told().written = 1 << 40),
        ("read what is not there", |guest| {
            guest.told().read = 1 << 40
        }),
        ("a head that is none", |guest| {
            guest.put(&[0xff; 100]);
            guest.told().head = 100;
        }),
        ("a head longer than what there is", |guest| {
            guest.put(b"x");
            guest.told().head = 100;
        }),
        ("a head too long", |guest| {
            guest.put(&vec![0; HEAD_MAX as usize + 1]);
            guest.told().head = HEAD_MAX as u32 + 1;
        }),
        ("a second head", |guest| {
            guest.begin(false).unwrap();
            guest.told().head += 1;
        }),
        ("too long a tail", |guest| {
            guest.begin(false).unwrap();
            guest.told().end = ChannelWords::end_with(TAIL_MAX as u32 + 1);
        }),
    ];
    for (what, lie) in lies {
        let mut guest = Guest::with(Scripted {
            room: 1,
            ..Scripted::default()
        });
        lie(&mut guest);
        guest.words.wait_for = Waits::of(channel()).word();
        let looked = guest.look();
        let read = guest.calls.as_ref().unwrap();
        let read = read.is_served(&guest.mailbox, &guest.words);
        assert!(looked.is_err() || read.is_err(), "{what}");
    }
    // Without a head there is no request, and nothing is taken.
    let mut guest = Guest::with(Scripted::default());
    guest.put(b"a body");
    guest.told().end = 1;
    assert_eq!(guest.look().unwrap(), 0);
    assert!(guest.seen.begun.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_invalid_answer_is_reported_to_the_function_as_a_failure() {
    let large = |length: u64| Bytes::from(vec![1; length as usize]);
    let head = FailureCode::HttpResponseHeaderSectionSize;
    let tail = FailureCode::HttpResponseTrailerSectionSize;
    let disorder = FailureCode::InternalError;
    let refused = Failure::with_text(FailureCode::TlsAlertReceived, "unknown ca");
    let before = [
        (head, vec![AnswerPart::Head(large(HEAD_MAX + 1))]),
        (head, vec![AnswerPart::Head(Bytes::new())]),
        (disorder, vec![AnswerPart::Data(large(1))]),
        (disorder, vec![AnswerPart::End(Bytes::new())]),
        (refused.code, vec![AnswerPart::Failed(refused.clone())]),
    ];
    for (code, parts) in before {
        let mut guest = Guest::with(Scripted {
            parts,
            ..Scripted::default()
        });
        guest.begin(true).unwrap();
        assert_eq!(guest.goes_on().await.unwrap(), b"");
        let answer = Answer::decode(&guest.got).unwrap();
        assert!(matches!(answer, Answer::Failed(failure) if failure.code == code));
        assert_eq!(guest.under_way(), 0);
    }
    let begun = |part| vec![AnswerPart::Head(ok()), AnswerPart::Data(large(3)), part];
    let behind = [
        (tail, begun(AnswerPart::End(large(TAIL_MAX + 1)))),
        (disorder, begun(AnswerPart::Head(ok()))),
        (refused.code, begun(AnswerPart::Failed(refused))),
    ];
    for (code, parts) in behind {
        let mut guest = Guest::with(Scripted {
            parts,
            ..Scripted::default()
        });
        guest.begin(true).unwrap();
        let tail = guest.goes_on().await.unwrap();
        let tail = Tail::decode(&tail).unwrap();
        assert!(matches!(tail, Tail::Failed(failure) if failure.code == code));
        assert_eq!(guest.got.len(), ok().len() + 3);
    }
}

#[tokio::test]
async fn body_bytes_sent_after_the_answer_are_discarded() {
    let mut guest = Guest::with(Scripted {
        parts: vec![AnswerPart::Head(ok()), AnswerPart::End(Bytes::new())],
        ..Scripted::default()
    });
    guest.begin(false).unwrap();
    guest.goes_on().await.unwrap();
    let ring = channel().to_host().size() - TAIL_MAX;
    for _ in 0..3 {
        let used = guest.told().written - guest.mailbox.host_words.channels[channel()].read;
        guest.put(&vec![0; (ring - used) as usize]);
        guest.words.wait_for = Waits::room(channel()).word();
        guest.look().unwrap();
        let calls = guest.calls.as_ref().unwrap();
        assert!(calls.is_served(&guest.mailbox, &guest.words).unwrap());
    }
    assert!(guest.seen.body.lock().unwrap().is_empty());
    // The guest pays for these bytes.
    guest.put(&[0; 5000]);
    assert_eq!(guest.work().unwrap().bytes, 5000);
    assert_eq!(guest.work().unwrap(), CallWork::default());
}

#[tokio::test(start_paused = true)]
async fn an_idle_call_times_out_and_counts_as_upstream_time_until_then() {
    let idle = Duration::from_secs(10);
    let mut guest = Guest::with(Scripted::default());
    assert_eq!(guest.calls.as_ref().unwrap().deadline(idle), None);
    guest.words.wait_for = Waits::bytes(channel()).word();
    guest.look().unwrap();
    assert!(
        !guest.calls.as_ref().unwrap().awaits_answers(),
        "nothing was begun"
    );
    guest.begin(true).unwrap();
    assert!(guest.calls.as_ref().unwrap().awaits_answers());
    // The guest waits for something else as well, so it does not wait for outbound calls only.
    guest.words.wait_for |= Waits::bytes(Channel::INVOCATION).word();
    guest.look().unwrap();
    assert!(!guest.calls.as_ref().unwrap().awaits_answers());
    let due = guest.calls.as_ref().unwrap().deadline(idle).unwrap();
    assert_eq!(due, Instant::now() + idle);
    tokio::time::advance(idle).await;
    let calls = guest.calls.as_mut().unwrap();
    calls
        .end_idle(idle, &mut guest.mailbox, &guest.words)
        .unwrap();
    guest.take();
    let answer = Answer::decode(&guest.got).unwrap();
    let timeout = Failure::new(FailureCode::HttpResponseTimeout);
    assert_eq!(answer, Answer::Failed(timeout));
    assert_eq!(guest.under_way(), 0);
    assert_eq!(guest.calls.as_ref().unwrap().deadline(idle), None);
}
