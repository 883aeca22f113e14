use super::*;
use crate::sink::LogStream;

/// What a guest would write.
fn forge(mailbox: &Mailbox, change: impl FnOnce(&mut GuestWords)) -> GuestWords {
    let mut words = mailbox.guest().unwrap();
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

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let mut mailbox = Mailbox::new().unwrap();
    let large = vec![0; (64 << 10) + 1];
    assert!(matches!(
        mailbox.put_head(&large, false, false),
        Err(InvokeError::RequestTooLarge { part: "head", .. })
    ));
    mailbox.put_head(&large[1..], true, false).unwrap();
    assert!(matches!(
        mailbox.end_request(&[(large, Vec::new())]),
        Err(InvokeError::RequestTooLarge {
            part: "trailers",
            ..
        })
    ));
    assert_eq!(host(&mailbox).request_end, mailbox::REQUEST_OPEN);
}

#[test]
fn bodies_of_any_size_pass_through_the_rings() {
    let mut mailbox = Mailbox::new().unwrap();
    let (mut sent, mut received) = (0_u64, 0_u64);
    let byte = |number: u64| (number * 7 % 251) as u8;
    let mut step = 1_usize;
    while received < 5 << 20 {
        step = step * 31 % 700_001 + 1;
        let guest = mailbox.guest().unwrap();
        let bytes: Vec<u8> = (sent..).take(step).map(byte).collect();
        sent += mailbox.put_body(&guest, &bytes).unwrap() as u64;
        assert_eq!(host(&mailbox).request_written, sent);
        // A guest that echoes what it finds.
        let there = (sent - guest.request_read) as usize;
        let echoed = mailbox
            .copy_ring(mailbox::REQUEST_BODY, guest.request_read, there)
            .unwrap();
        let mut rest = echoed.as_slice();
        for piece in pieces(mailbox::RESPONSE_BODY, guest.response_written, there) {
            let (now, later) = rest.split_at(piece.length);
            mailbox.write(piece.offset, now).unwrap();
            rest = later;
        }
        let guest = forge(&mailbox, |guest| {
            guest.request_read += there as u64;
            guest.response_written += there as u64;
        });
        let taken = mailbox.take_body(&guest, usize::MAX).unwrap();
        assert!(
            taken
                .iter()
                .copied()
                .eq((received..).take(taken.len()).map(byte))
        );
        received += taken.len() as u64;
        assert_eq!(host(&mailbox).response_read, received);
    }
    assert_eq!(sent, received);
}

#[test]
fn what_no_guest_has_touched_can_be_taken_back() {
    let mut mailbox = Mailbox::new().unwrap();
    assert!(mailbox.is_untouched().unwrap());
    assert!(mailbox.untaken_body().unwrap().is_empty());
    let guest = mailbox.guest().unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    mailbox.put_head(b"head", true, false).unwrap();
    let put = mailbox.put_body(&guest, &bytes[..5]).unwrap();
    assert_eq!(mailbox.untaken_body().unwrap(), bytes[..5]);
    let put = put + mailbox.put_body(&guest, &bytes[5..]).unwrap();
    assert_eq!(mailbox.untaken_body().unwrap(), bytes[..put]);
    assert!(mailbox.is_untouched().unwrap());

    let guest = forge(&mailbox, |guest| guest.request_read = 10);
    assert!(!mailbox.is_untouched().unwrap());
    mailbox.put_body(&guest, &bytes[put..]).unwrap();
    // A guest that goes back on its word has touched it still.
    forge(&mailbox, |guest| guest.request_read = 0);
    assert!(mailbox.untaken_body().is_err());
}

#[test]
fn a_log_that_was_taken_is_a_trace() {
    let mut mailbox = Mailbox::new().unwrap();
    let log = record(1, b"begun\n");
    mailbox.write(mailbox::LOG.offset, &log).unwrap();
    let guest = forge(&mailbox, |guest| guest.log_written = log.len() as u64);
    mailbox.take_log(&guest).unwrap();
    forge(&mailbox, |guest| guest.log_written = 0);
    assert!(!mailbox.is_untouched().unwrap());
}

#[test]
fn a_full_ring_takes_no_more() {
    let mut mailbox = Mailbox::new().unwrap();
    let guest = mailbox.guest().unwrap();
    let large = vec![1; 3 << 20];
    assert_eq!(mailbox.put_body(&guest, &large).unwrap(), 1 << 20);
    assert_eq!(mailbox.put_body(&guest, &large).unwrap(), 0);
    let guest = forge(&mailbox, |guest| guest.request_read = 10);
    assert_eq!(mailbox.put_body(&guest, &large).unwrap(), 10);
}

#[test]
fn lengths_and_counters_that_cannot_be_are_the_guests_fault() {
    let mut mailbox = Mailbox::new().unwrap();
    let guest = forge(&mailbox, |guest| {
        guest.response_head_len = u32::MAX;
        guest.response_trailers_len = u32::MAX;
        guest.response_written = (1 << 20) + 1;
        guest.request_read = 1;
        guest.report_len = 4097;
        guest.log_written = (128 << 10) + 1;
    });
    for lie in [
        mailbox.head(&guest).map(|_| ()),
        mailbox.trailers(&guest).map(|_| ()),
        mailbox.take_body(&guest, 1).map(|_| ()),
        mailbox.put_body(&guest, b"x").map(|_| ()),
        mailbox.report(&guest).map(|_| ()),
        mailbox.take_log(&guest).map(|_| ()),
    ] {
        assert!(matches!(lie, Err(InvokeError::GuestFailed(_))));
    }
    // Going back is a lie, too.
    let guest = forge(&mailbox, |guest| guest.response_written = 5);
    mailbox.take_body(&guest, 5).unwrap();
    let guest = forge(&mailbox, |guest| guest.response_written = 4);
    assert!(mailbox.take_body(&guest, 5).is_err());
}

#[test]
fn the_log_comes_out_once() {
    let mut mailbox = Mailbox::new().unwrap();
    let mut log = record(1, b"hello\n");
    log.extend(record(2, b""));
    mailbox.write(mailbox::LOG.offset, &log).unwrap();
    let guest = forge(&mailbox, |guest| guest.log_written = log.len() as u64);
    let records = mailbox.take_log(&guest).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].stream, LogStream::Out);
    assert_eq!(records[0].bytes, b"hello\n");
    assert_eq!(host(&mailbox).log_read, log.len() as u64);
    assert_eq!(mailbox.take_log(&guest).unwrap(), []);
}

#[test]
fn a_head_and_trailers_that_spell_nothing_are_refused() {
    let mailbox = Mailbox::new().unwrap();
    mailbox
        .write(mailbox::RESPONSE_HEAD.offset, &[200, 0, 255, 255])
        .unwrap();
    mailbox
        .write(mailbox::RESPONSE_TRAILERS.offset, &[1, 0, 0, 0, 9])
        .unwrap();
    let guest = forge(&mailbox, |guest| {
        guest.response_head_len = 4;
        guest.response_trailers_len = 5;
    });
    assert!(mailbox.head(&guest).is_err());
    assert!(mailbox.trailers(&guest).is_err());
    let none = forge(&mailbox, |guest| {
        guest.response_head_len = 0;
        guest.response_trailers_len = 0;
    });
    assert_eq!(mailbox.head(&none).unwrap(), None);
    assert_eq!(mailbox.trailers(&none).unwrap(), []);
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
fn control_characters_do_not_reach_whoever_reads_a_report() {
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
    assert!(rustix::fs::ftruncate(&mailbox.file, MAILBOX_BYTES * 2).is_err());
}
