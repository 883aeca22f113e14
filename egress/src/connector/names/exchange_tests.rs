//! Real servers on loopback, by datagrams and streams.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket as StdUdpSocket};
use std::sync::Arc;
use std::thread;

use super::*;
use crate::connector::dial::ADDRESSES_MAX;

/// Longer than any answer on loopback takes.
const LONG: Duration = Duration::from_secs(60);

/// A wait that ends in silence; a third of it is enough for an answer on loopback.
const SILENT: Duration = Duration::from_secs(3);

/// A server that sends what `answer` makes of each question, by datagrams and by streams.
fn server(answer: impl Fn(&[u8], bool) -> Vec<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
    // A stream's port is free for datagrams far more surely than the other way round.
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(socket) = StdUdpSocket::bind(listener.local_addr().unwrap()) {
            break (listener, socket);
        }
    };
    let address = socket.local_addr().unwrap();
    let answer = Arc::new(answer);
    let by_stream = answer.clone();
    thread::spawn(move || {
        let mut question = [0; DATAGRAM_MAX];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            for message in answer(&question[..length], false) {
                socket.send_to(&message, from).unwrap();
            }
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), by_stream.clone());
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut question = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut question).unwrap();
                    for message in answer(&question, true) {
                        let length = u16::try_from(message.len()).unwrap().to_be_bytes();
                        let _ = stream.write_all(&[&length[..], &message].concat());
                    }
                }
            });
        }
    });
    address
}

const TRUNCATED: u16 = 0x0200;

/// An answer to a question, of records of its name: type and data.
fn answer(question: &[u8], flags: u16, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = question.to_vec();
    message[2..4].copy_from_slice(&(0x8180 | flags).to_be_bytes());
    message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    for (kind, data) in records {
        message.extend_from_slice(&[0xc0, 12]);
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        message.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        message.extend_from_slice(data);
    }
    message
}

/// The type that a question asks for.
fn kind(question: &[u8]) -> u16 {
    let end = question.len() - 4;
    u16::from_be_bytes([question[end], question[end + 1]])
}

fn is_root(question: &[u8]) -> bool {
    question[12] == 0
}

fn ask(server: SocketAddr, wait: Duration) -> Result<LookupAnswer, LookupFailure> {
    let runtime = crate::runtime().unwrap();
    let name = WireName::new("a.example").unwrap();
    runtime.block_on(Sockets.ask(server, &name, wait))
}

const FOUR: [u8; 4] = [192, 0, 2, 1];
const SIX: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

#[test]
fn both_address_families_are_queried_and_unrelated_datagrams_ignored() {
    let server = server(|question, _| {
        let data = match kind(question) {
            1 => FOUR.to_vec(),
            _ => SIX.to_vec(),
        };
        let good = answer(question, 0, &[(kind(question), data)]);
        let mut other_id = good.clone();
        other_id[0] ^= 1;
        let mut other_name = good.clone();
        other_name[13] ^= 1;
        vec![
            b"nonsense".to_vec(),
            question.to_vec(),
            other_id,
            other_name,
            good,
        ]
    });
    let found = ask(server, LONG).unwrap();
    assert_eq!(found.addresses, [IpAddr::from(FOUR), IpAddr::from(SIX)]);
    assert_eq!(found.time, Duration::from_secs(60));
}

#[test]
fn one_family_is_enough() {
    let server = server(|question, _| match kind(question) {
        1 => vec![answer(question, 0, &[(1, FOUR.to_vec())])],
        _ => vec![answer(question, 2, &[])],
    });
    assert_eq!(ask(server, LONG).unwrap().addresses, [IpAddr::from(FOUR)]);
}

#[test]
fn a_truncated_answer_is_queried_again_over_tcp() {
    // Nearly 64 KiB of addresses for one family, and of aliases of the name for the other.
    let server = server(|question, is_stream| match (is_stream, kind(question)) {
        (false, _) => vec![answer(question, TRUNCATED, &[])],
        (true, 1) => vec![answer(question, 0, &vec![(1, FOUR.to_vec()); 4000])],
        (true, _) => vec![answer(question, 0, &vec![(5, vec![0xc0, 12]); 4600])],
    });
    let found = ask(server, LONG).unwrap();
    assert_eq!(found.addresses, vec![IpAddr::from(FOUR); ADDRESSES_MAX]);
}

#[test]
fn a_stream_that_answers_something_else_or_nothing_fails() {
    let strange = server(|question, is_stream| {
        if is_stream {
            vec![question.to_vec()]
        } else {
            vec![answer(question, TRUNCATED, &[])]
        }
    });
    assert_eq!(ask(strange, LONG), Err(LookupFailure::Failed(None)));
    let truncated = server(|question, _| vec![answer(question, TRUNCATED, &[])]);
    assert_eq!(ask(truncated, LONG), Err(LookupFailure::Failed(None)));
    let silent = server(|question, is_stream| {
        if is_stream {
            vec![]
        } else {
            vec![answer(question, TRUNCATED, &[])]
        }
    });
    assert_eq!(ask(silent, SILENT), Err(LookupFailure::SilentOnName));
}

#[test]
fn silence_about_one_name_differs_from_a_silent_server() {
    let silent = server(|_, _| vec![]);
    assert_eq!(ask(silent, SILENT), Err(LookupFailure::SilentOnAll));
    let slow = server(|question, _| {
        if is_root(question) {
            vec![answer(question, 5, &[])]
        } else {
            vec![]
        }
    });
    assert_eq!(ask(slow, SILENT), Err(LookupFailure::SilentOnName));
    // No server listens: the kernel reports that at once.
    let nobody = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    assert_eq!(ask(address, LONG), Err(LookupFailure::SilentOnAll));
}

#[test]
fn a_server_that_floods_with_nonsense_is_given_up() {
    let server = server(|question, _| vec![question.to_vec(); 2 * STRANGE_MAX]);
    let failed = ask(server, LONG).unwrap_err();
    assert!(failed.is_silent(), "{failed:?}");
}

#[test]
fn aliases_that_the_server_leaves_to_the_resolver_are_followed_to_their_bound() {
    let alias = |question: &[u8]| {
        // Each name is an alias of one that is a letter longer.
        let mut target = question[12..question.len() - 4].to_vec();
        target[0] += 1;
        target.insert(1, b'a');
        answer(question, 0, &[(5, target)])
    };
    let endless = server(move |question, _| vec![alias(question)]);
    assert_eq!(ask(endless, LONG), Err(LookupFailure::Failed(None)));
    let ends = server(move |question, _| match (question[12], kind(question)) {
        (5, 1) => vec![answer(question, 0, &[(1, FOUR.to_vec())])],
        (5, _) => vec![answer(question, 0, &[])],
        _ => vec![alias(question)],
    });
    assert_eq!(ask(ends, LONG).unwrap().addresses, [IpAddr::from(FOUR)]);
}

#[test]
fn the_results_of_two_address_families_are_combined() {
    let known = LookupFailure::Known(3);
    let failed = LookupFailure::Failed(Some(2));
    for (one, other, expected) in [
        (known, known, known),
        (known, failed, failed),
        (
            known,
            LookupFailure::SilentOnName,
            LookupFailure::SilentOnName,
        ),
        (LookupFailure::SilentOnAll, failed, failed),
        (failed, LookupFailure::SilentOnAll, failed),
    ] {
        assert_eq!(one.or(other), expected);
    }
}
