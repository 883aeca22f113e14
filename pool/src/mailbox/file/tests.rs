use faasw_abi::channel::{HEAD_MAX, TAIL_MAX};

use super::*;
use crate::error::RequestPart;
use crate::sink::LogStream;

/// Returns the words that a guest would write.
fn forge(mailbox: &Mailbox, change: impl FnOnce(&mut GuestWords)) -> GuestWords {
    let mut words = GuestWords::new_zeroed();
    mailbox
        .read(GUEST_WORDS.offset, words.as_mut_bytes())
        .unwrap();
    change(&mut words);
    mailbox.write(GUEST_WORDS.offset, words.as_bytes()).unwrap();
    mailbox.guest().unwrap()
}

fn host(mailbox: &Mailbox) -> HostWords {
    let mut words = HostWords::new_zeroed();
    mailbox
        .read(HOST_WORDS.offset, words.as_mut_bytes())
        .unwrap();
    words
}

fn record(stream: u8, bytes: &[u8]) -> Vec<u8> {
    let mut record = vec![stream, 0, 0, 0];
    record.extend((bytes.len() as u32).to_le_bytes());
    record.extend(bytes);
    record
}

/// Returns the channels with which the tests of both kinds are run.
fn channels() -> [Channel; 3] {
    [0, 1, 23].map(|number| Channel::new(number).unwrap())
}

fn opened(channel: Channel, head: &[u8]) -> Mailbox {
    let mut mailbox = Mailbox::new().unwrap();
    mailbox.open_channel(channel, head, false, false).unwrap();
    mailbox
}

#[test]
fn a_part_that_does_not_fit_is_rejected_by_name() {
    let mut mailbox = Mailbox::new().unwrap();
    let channel = Channel::INVOCATION;
    let large = vec![0; (64 << 10) + 1];
    assert!(matches!(
        mailbox.open_channel(channel, &large, false, false),
        Err(InvokeError::RequestTooLarge {
            part: RequestPart::Head,
            ..
        })
    ));
    assert_eq!(host(&mailbox).open, 0);
    mailbox
        .open_channel(channel, &large[1..], false, true)
        .unwrap();
    assert!(matches!(
        mailbox.finish(channel, &large),
        Err(InvokeError::RequestTooLarge {
            part: RequestPart::Trailers,
            ..
        })
    ));
    let said = host(&mailbox);
    assert_eq!((said.open, said.tell_end), (1, 1));
    assert_eq!(said.channels[channel].end, 0);
    assert_eq!(said.channels[channel].head, 64 << 10);
}

#[test]
fn messages_of_any_size_pass_through_the_rings() {
    for channel in channels() {
        let mut mailbox = opened(channel, b"head");
        let (mut sent, mut received) = (4_u64, 0_u64);
        let byte = |number: u64| (number * 7 % 251) as u8;
        let mut step = 1_usize;
        while received < 3 << 20 {
            step = step * 31 % 700_001 + 1;
            let guest = mailbox.guest().unwrap();
            let bytes: Vec<u8> = (sent..).take(step).map(byte).collect();
            sent += mailbox.put(channel, &guest, &bytes).unwrap() as u64;
            assert_eq!(host(&mailbox).channels[channel].written, sent);
            // The guest echoes what it finds, the head first.
            let told = guest.channels[channel];
            let there = (sent - told.read) as usize;
            let echoed = mailbox
                .copy_ring(channel.to_guest(), told.read, there)
                .unwrap();
            mailbox
                .put_ring(channel.to_host(), told.written, &echoed)
                .unwrap();
            let guest = forge(&mailbox, |guest| {
                let told = &mut guest.channels[channel];
                told.read += there as u64;
                told.written += there as u64;
                told.head = 4;
            });
            if received == 0 {
                let head = mailbox.take_head(channel, &guest).unwrap();
                assert_eq!(head.unwrap(), b"head");
                received = 4;
            }
            let taken = mailbox.take(channel, &guest, usize::MAX).unwrap();
            assert!(
                taken
                    .iter()
                    .copied()
                    .eq((received..).take(taken.len()).map(byte))
            );
            received += taken.len() as u64;
            assert_eq!(mailbox.take_head(channel, &guest).unwrap(), None);
        }
        assert_eq!(sent, received);
    }
}

#[test]
fn a_message_has_a_head_a_body_and_a_tail() {
    for channel in channels() {
        let mut mailbox = opened(channel, b"to");
        mailbox
            .put_ring(channel.to_host(), 0, b"headbodytail")
            .unwrap();
        let guest = forge(&mailbox, |guest| {
            guest.channels[channel] = ChannelWords {
                written: 8,
                read: 0,
                head: 4,
                end: ChannelWords::end_with(4),
                turn: 0,
            };
        });
        assert_eq!(mailbox.waiting(channel, &guest).unwrap(), 4);
        let head = mailbox.take_head(channel, &guest).unwrap();
        assert_eq!(head.unwrap(), b"head");
        assert_eq!(mailbox.tail(channel, &guest).unwrap().unwrap(), b"tail");
        assert_eq!(mailbox.waiting(channel, &guest).unwrap(), 4);
        let left = mailbox.take_rest(channel, &guest).unwrap().unwrap();
        assert_eq!(
            (&left.body[..], &left.tail[..]),
            (&b"body"[..], &b"tail"[..])
        );
        assert_eq!(mailbox.waiting(channel, &guest).unwrap(), 0);

        // The other direction.
        mailbox.finish(channel, b"tail").unwrap();
        let said = host(&mailbox).channels[channel];
        assert_eq!((said.head, said.written, said.tail()), (2, 2, Some(4)));
        let tail = mailbox.copy_ring(channel.to_guest(), 2, 4).unwrap();
        assert_eq!(tail, b"tail");
    }
}

#[test]
fn both_sides_count_the_same_room() {
    for channel in channels() {
        let size = channel.to_host().size();
        let mut mailbox = opened(channel, b"to");
        // The guest fills the ring, its head included, as far as a body may.
        let guest = forge(&mailbox, |guest| {
            guest.channels[channel].written = size - TAIL_MAX;
            guest.channels[channel].head = 4;
        });
        assert!(!mailbox.has_room(channel, &guest).unwrap());
        mailbox.take_head(channel, &guest).unwrap().unwrap();
        mailbox.publish_taken(channel).unwrap();
        assert!(mailbox.has_room(channel, &guest).unwrap());
        assert_eq!(host(&mailbox).channels[channel].read, 4);
        mailbox.take(channel, &guest, 100).unwrap();
        assert_eq!(host(&mailbox).channels[channel].read, 104);
    }
}

#[test]
fn a_channel_that_is_not_open_is_not_read_and_takes_no_page() {
    let mut mailbox = opened(Channel::INVOCATION, b"head");
    let other = Channel::new(7).unwrap();
    forge(&mailbox, |guest| guest.channels[other].written = u64::MAX);
    assert_eq!(mailbox.guest().unwrap().channels[other].written, 0);
    assert!(mailbox.is_untouched().unwrap());
    let blocks = |mailbox: &Mailbox| rustix::fs::fstat(mailbox).unwrap().st_blocks;
    // The page of the request, and that of the words.
    assert_eq!(blocks(&mailbox), 2 * 8);
    mailbox.open_channel(other, b"head", true, false).unwrap();
    assert_eq!(blocks(&mailbox), 3 * 8);
    assert_eq!(mailbox.guest().unwrap().channels[other].written, u64::MAX);
    // Neither is a channel that lies between others.
    let between = Channel::new(5).unwrap();
    forge(&mailbox, |guest| guest.channels[between].written = u64::MAX);
    assert!(mailbox.guest().unwrap().channels[between].is_untouched());
}

#[test]
fn a_body_that_no_guest_has_touched_can_be_read_back() {
    let channel = Channel::INVOCATION;
    let mut mailbox = opened(channel, b"head");
    assert!(mailbox.is_untouched().unwrap());
    assert!(mailbox.untaken_body(channel).unwrap().is_empty());
    let guest = mailbox.guest().unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    let put = mailbox.put(channel, &guest, &bytes[..5]).unwrap();
    assert_eq!(mailbox.untaken_body(channel).unwrap(), bytes[..5]);
    let put = put + mailbox.put(channel, &guest, &bytes[5..]).unwrap();
    assert_eq!(mailbox.untaken_body(channel).unwrap(), bytes[..put]);
    assert!(mailbox.is_untouched().unwrap());
    let guest = forge(&mailbox, |guest| guest.channels[channel].read = 10);
    assert!(!mailbox.is_untouched().unwrap());
    mailbox.put(channel, &guest, &bytes[put..]).unwrap();
    // The guest decreases a counter.
    let guest = forge(&mailbox, |guest| guest.channels[channel].read = 0);
    assert_eq!(mailbox.put(channel, &guest, b"x").unwrap(), 0);
}

#[test]
fn a_mailbox_whose_log_was_taken_is_not_untouched() {
    let mut mailbox = Mailbox::new().unwrap();
    let log = record(1, b"begun\n");
    mailbox.put_ring(LOG, 0, &log).unwrap();
    let guest = forge(&mailbox, |guest| guest.log_written = log.len() as u64);
    mailbox.take_log(&guest).unwrap();
    forge(&mailbox, |guest| guest.log_written = 0);
    assert!(!mailbox.is_untouched().unwrap());
}

#[test]
fn a_full_ring_takes_no_more_but_a_tail() {
    for channel in channels() {
        let mut mailbox = opened(channel, b"head");
        let guest = mailbox.guest().unwrap();
        let large = vec![1; 3 << 20];
        let room = (channel.to_guest().size() - TAIL_MAX) as usize - 4;
        assert_eq!(mailbox.put(channel, &guest, &large).unwrap(), room);
        assert_eq!(mailbox.put(channel, &guest, &large).unwrap(), 0);
        let guest = forge(&mailbox, |guest| guest.channels[channel].read = 10);
        assert_eq!(mailbox.put(channel, &guest, &large).unwrap(), 10);
        let tail = vec![2; TAIL_MAX as usize];
        mailbox.finish(channel, &tail).unwrap();
        // No byte that was not taken was overwritten.
        let body = mailbox.copy_ring(channel.to_guest(), 10, room + 4).unwrap();
        assert!(body.iter().all(|byte| *byte == 1));
    }
}

#[test]
fn impossible_lengths_and_counters_are_the_guests_fault() {
    for channel in channels() {
        let size = channel.to_host().size();
        let mut mailbox = opened(channel, b"");
        let lies = [
            // More than the ring, or the message, contains.
            (size + 1, 0, 1, 1),
            (u64::MAX, 0, 1, 1),
            (10, 0, 11, 1),
            (size, 0, HEAD_MAX as u32 + 1, 1),
            (10, 0, u32::MAX, u32::MAX),
            (10, 0, 1, u32::MAX),
            (10, 0, 1, ChannelWords::end_with(TAIL_MAX as u32 + 1)),
            (size - 10, 0, 1, ChannelWords::end_with(12)),
        ];
        for (written, read, head, end) in lies {
            let guest = forge(&mailbox, |guest| {
                guest.channels[channel] = ChannelWords {
                    written,
                    read,
                    head,
                    end,
                    turn: 0,
                };
            });
            let refused = mailbox
                .take_head(channel, &guest)
                .and_then(|_| mailbox.take_rest(channel, &guest));
            let told = (written, read, head, end);
            assert!(
                matches!(refused, Err(InvokeError::GuestFailed(_))),
                "{told:?}: {}",
                refused.is_ok()
            );
            mailbox.host_words.channels[channel].read = 0;
        }
        let guest = forge(&mailbox, |guest| {
            guest.channels[channel] = ChannelWords {
                read: 1,
                ..ChannelWords::default()
            };
            guest.report_len = 4097;
            guest.log_written = (128 << 10) + 1;
        });
        for lie in [
            mailbox.put(channel, &guest, b"x").map(|_| ()),
            mailbox.untaken_bytes(channel, &guest).map(|_| ()),
            mailbox.report(&guest).map(|_| ()),
            mailbox.take_log(&guest).map(|_| ()),
        ] {
            assert!(matches!(lie, Err(InvokeError::GuestFailed(_))));
        }
        // Decreasing a counter is rejected, too.
        let guest = forge(&mailbox, |guest| {
            guest.channels[channel].head = 1;
            guest.channels[channel].written = 6;
        });
        mailbox.take_head(channel, &guest).unwrap();
        assert_eq!(mailbox.take(channel, &guest, 5).unwrap().len(), 5);
        let guest = forge(&mailbox, |guest| guest.channels[channel].written = 5);
        assert!(mailbox.take(channel, &guest, 5).is_err());
    }
}

#[test]
fn the_log_comes_out_once() {
    let mut mailbox = Mailbox::new().unwrap();
    let mut log = record(1, b"hello\n");
    log.extend(record(2, b""));
    mailbox.put_ring(LOG, 0, &log).unwrap();
    let guest = forge(&mailbox, |guest| guest.log_written = log.len() as u64);
    let records = mailbox.take_log(&guest).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].stream, LogStream::Out);
    assert_eq!(records[0].bytes, b"hello\n");
    assert_eq!(host(&mailbox).log_read, log.len() as u64);
    assert_eq!(mailbox.take_log(&guest).unwrap(), []);
}

#[test]
fn a_log_that_is_not_made_of_records_is_refused() {
    let mut overlong = record(1, b"x");
    overlong[4] = 200;
    for bytes in [&b"abc"[..], &record(7, b"x"), &overlong] {
        assert!(crate::mailbox::log_record::parse(bytes).is_err());
    }
}

#[test]
fn control_characters_in_a_report_are_escaped() {
    let mailbox = Mailbox::new().unwrap();
    let text = b"a\x1b[31m\nb\xff";
    mailbox.write(mailbox::REPORT.offset, text).unwrap();
    let guest = forge(&mailbox, |guest| guest.report_len = text.len() as u32);
    let report = mailbox.report(&guest).unwrap();
    assert_eq!(report, "a\\u{1b}[31m\nb\u{fffd}");
}

#[test]
fn a_mailbox_cannot_be_resized() {
    let mailbox = Mailbox::new().unwrap();
    assert!(rustix::fs::ftruncate(&mailbox.file, 0).is_err());
    assert!(rustix::fs::ftruncate(&mailbox.file, FILE_BYTES * 2).is_err());
}
