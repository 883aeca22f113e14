//! Valid and hostile answers.

use super::*;

fn question(name: &str, kind: RecordType) -> Question {
    Question {
        id: 0x1234,
        name: WireName::new(name).unwrap(),
        kind,
    }
}

/// An answer to `question` of `count` records, whose bytes follow the question.
fn answer(question: &Question, flags: u16, count: u16, records: &[u8]) -> Vec<u8> {
    let mut message = question.to_message();
    message[2..4].copy_from_slice(&(RESPONSE | flags).to_be_bytes());
    message[6..8].copy_from_slice(&count.to_be_bytes());
    message.extend_from_slice(records);
    message
}

/// A record of the question's name, which a pointer leads to.
fn record(kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    named(&[0xc0, 12], kind, ttl, data)
}

fn named(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut record = name.to_vec();
    record.extend_from_slice(&kind.to_be_bytes());
    record.extend_from_slice(&IN.to_be_bytes());
    record.extend_from_slice(&ttl.to_be_bytes());
    record.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
    record.extend_from_slice(data);
    record
}

#[test]
fn only_addresses_of_the_queried_name_are_accepted() {
    let asked = question("A.example", RecordType::A);
    let stranger = WireName::new("b.example").unwrap();
    let records = [
        named(&stranger.0, A, 60, &[10, 0, 0, 1]),
        record(A, 300, &[192, 0, 2, 1]),
        record(AAAA, 60, &[0; 16]),
        record(A, 200, &[192, 0, 2, 2]),
    ]
    .concat();
    let addresses = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from).into();
    let reply = asked.reply(&answer(&asked, 0, 4, &records));
    assert_eq!(reply, Some(Reply::Addresses(addresses, 200)));
    // A TTL that looks negative is 0.
    let records = record(A, u32::MAX, &[192, 0, 2, 1]);
    let reply = asked.reply(&answer(&asked, 0, 1, &records));
    assert!(matches!(reply, Some(Reply::Addresses(_, 0))), "{reply:?}");
    // A data length that no address has.
    let records = record(A, 60, &[192, 0, 2]);
    let reply = asked.reply(&answer(&asked, 0, 1, &records));
    assert_eq!(reply, Some(Reply::Failed(None)));
}

#[test]
fn only_an_answer_to_the_question_is_taken() {
    let asked = question("a.example", RecordType::A);
    let good = answer(&asked, 0, 1, &record(A, 60, &[192, 0, 2, 1]));
    assert!(asked.reply(&good).is_some());
    // The bits change the id, the response flag, the operation, the name, the type and the class.
    for (at, bit) in [
        (0, 1),
        (1, 1),
        (2, 0x80),
        (2, 0x08),
        (13, 1),
        (24, 1),
        (26, 1),
    ] {
        let mut other = good.clone();
        other[at] ^= bit;
        assert_eq!(asked.reply(&other), None, "byte {at}");
    }
    // A server that spells the name in another case has read it.
    let mut shouted = good.clone();
    shouted[13] = b'A';
    assert_eq!(asked.reply(&shouted), asked.reply(&good));
    for length in 0..good.len() {
        let cut = asked.reply(&good[..length]);
        assert!(
            matches!(cut, None | Some(Reply::Failed(None))),
            "{length}: {cut:?}"
        );
    }
}

#[test]
fn response_codes_map_to_their_outcomes() {
    let asked = question("a.example", RecordType::Aaaa);
    for (code, expected) in [
        (0, Reply::Nothing(NO_ERROR)),
        (2, Reply::Failed(Some(2))),
        (3, Reply::Nothing(NO_NAME)),
        (5, Reply::Failed(Some(5))),
        (TRUNCATED, Reply::Truncated),
    ] {
        let reply = asked.reply(&answer(&asked, code, 0, &[]));
        assert_eq!(reply, Some(expected));
    }
    // A server that could not read the question does not repeat it; no other may leave it out.
    for (code, expected) in [(1, Some(Reply::Failed(Some(1)))), (0, None), (3, None)] {
        let mut short = answer(&asked, code, 0, &[]);
        short[4..6].fill(0);
        short.truncate(HEADER);
        assert_eq!(asked.reply(&short), expected);
    }
}

#[test]
fn chains_of_aliases_are_followed_in_any_order_to_their_bound() {
    let asked = question("n0.example", RecordType::A);
    let chain = |links: usize| {
        let name = |at: usize| WireName::new(&format!("n{at}.example")).unwrap();
        let mut records: Vec<_> = (0..links)
            .map(|at| named(&name(at).0, CNAME, 100 + at as u32, &name(at + 1).0))
            .collect();
        records.push(named(&name(links).0, A, 3600, &[192, 0, 2, 1]));
        records.reverse();
        let count = u16::try_from(records.len()).unwrap();
        asked.reply(&answer(&asked, 0, count, &records.concat()))
    };
    for links in 1..=LINKS_MAX {
        let reply = chain(links);
        assert!(
            matches!(reply, Some(Reply::Addresses(_, 100))),
            "{links}: {reply:?}"
        );
    }
    assert_eq!(chain(LINKS_MAX + 1), Some(Reply::Failed(None)));
    // An alias of itself.
    let round = record(CNAME, 60, &[0xc0, 12]);
    let reply = asked.reply(&answer(&asked, 0, 1, &round));
    assert_eq!(reply, Some(Reply::Failed(None)));
}

#[test]
fn an_unresolved_alias_is_followed_unless_the_server_is_authoritative() {
    let asked = question("a.example", RecordType::Aaaa);
    let target = WireName::new("b.example").unwrap();
    let alias = record(CNAME, 60, &target.0);
    let reply = asked.reply(&answer(&asked, 0, 1, &alias));
    let expected = Reply::Alias {
        name: target,
        links: 1,
        ttl: 60,
    };
    assert_eq!(reply, Some(expected));
    let authority = named(&[0], SOA, 60, &[0; 22]);
    let mut message = answer(&asked, 0, 1, &[alias, authority].concat());
    message[9] = 1;
    assert_eq!(asked.reply(&message), Some(Reply::Nothing(NO_ERROR)));
}

#[test]
fn of_an_answer_of_64_kib_a_bounded_part_is_read() {
    let asked = question("a.example", RecordType::A);
    let one = record(A, 60, &[192, 0, 2, 1]);
    let count = (65_535 - 64) / one.len();
    let message = answer(&asked, 0, u16::try_from(count).unwrap(), &one.repeat(count));
    match asked.reply(&message) {
        Some(Reply::Addresses(addresses, 60)) => assert_eq!(addresses.len(), ADDRESSES_MAX),
        other => panic!("{other:?}"),
    }
    let (records, _) = asked.useful_records(&message, 27, RECORDS_MAX).unwrap();
    assert_eq!(records.len(), RECORDS_MAX);
    // Thousands of aliases of one name, each of itself.
    let one = record(CNAME, 60, &[0xc0, 12]);
    let count = (65_535 - 64) / one.len();
    let message = answer(&asked, 0, u16::try_from(count).unwrap(), &one.repeat(count));
    assert_eq!(asked.reply(&message), Some(Reply::Failed(None)));
    // More records are announced than there are.
    let message = answer(&asked, 0, u16::MAX, &record(A, 60, &[192, 0, 2, 1]));
    assert_eq!(asked.reply(&message), Some(Reply::Failed(None)));
}

#[test]
fn pointers_lead_back_and_a_bounded_number_of_times() {
    let message = |bytes: &[u8]| [&[0; HEADER][..], bytes].concat();
    // To itself, to one behind it, round in two steps, to the middle of what is being read.
    assert_eq!(read_name(&message(&[0xc0, 12]), 12), None);
    assert_eq!(read_name(&message(&[0xc0, 14, 0]), 12), None);
    assert_eq!(read_name(&message(&[1, b'a', 0xc0, 12]), 12), None);
    assert_eq!(
        read_name(&message(&[1, b'a', 0xc0, 16, 0xc0, 12]), 16),
        None
    );
    let good = message(&[1, b'b', 0, 1, b'a', 0xc0, 12]);
    assert_eq!(read_name(&good, 15), WireName::new("a.b"));
    assert_eq!(
        name_is(&good, 15, &WireName::new("a.b").unwrap()),
        Some(true)
    );
    assert_eq!(
        name_is(&good, 15, &WireName::new("a.bc").unwrap()),
        Some(false)
    );
    assert_eq!(
        name_is(&good, 15, &WireName::new("a").unwrap()),
        Some(false)
    );
    // A ladder of pointers, each to the one before.
    let mut ladder = message(&[1, b'a', 0, 0xc0, 12]);
    let last = |ladder: &Vec<u8>| ladder.len() - 2;
    for _ in 1..POINTERS_MAX {
        let to = u16::try_from(last(&ladder)).unwrap() | 0xc000;
        ladder.extend_from_slice(&to.to_be_bytes());
    }
    assert_eq!(read_name(&ladder, last(&ladder)), WireName::new("a"));
    let to = u16::try_from(last(&ladder)).unwrap() | 0xc000;
    ladder.extend_from_slice(&to.to_be_bytes());
    assert_eq!(read_name(&ladder, last(&ladder)), None);
    // Too long for a name; labels of a reserved type.
    let long = message(&[&[63; 64][..], &[63; 64], &[63; 64], &[63; 64], &[0]].concat());
    assert_eq!((read_name(&long, 12), skip_name(&long, 12)), (None, None));
    assert_eq!(skip_name(&message(&[0x40, 0]), 12), None);
    assert_eq!(read_name(&message(&[0x80, 0]), 12), None);
}

#[test]
fn names_are_spelled_and_bounded() {
    assert_eq!(WireName::new("A.b").unwrap().0, b"\x01a\x01b\0");
    let longest = "a.".repeat(126) + "a";
    assert_eq!(WireName::new(&longest).unwrap().0.len(), NAME_MAX);
    for bad in ["", "a..b", ".", &"a".repeat(64), &(longest.clone() + ".a")] {
        assert_eq!(WireName::new(bad), None, "{bad}");
    }
}

#[test]
fn no_message_makes_it_panic_or_exceed_its_bounds() {
    let mut random = fastrand::Rng::with_seed(32);
    let asked = question("www.a.example", RecordType::A);
    let alias = WireName::new("b.example").unwrap();
    let records = [
        record(CNAME, 60, &alias.0),
        named(&alias.0, A, 60, &[192, 0, 2, 1]),
        named(&[0xc0, 16], A, 60, &[192, 0, 2, 2]),
    ]
    .concat();
    let good = answer(&asked, 0, 3, &records);
    let mut read = 0;
    for _ in 0..200_000 {
        let mut bad = good.clone();
        for _ in 0..random.usize(1..6) {
            // The id stays, because otherwise nothing after it would be read.
            let at = random.usize(2..bad.len());
            bad[at] = match random.u8(0..3) {
                0 => random.u8(..),
                1 => 0xc0,
                _ => bad[at] ^ (1 << random.u8(0..8)),
            };
        }
        bad.truncate(random.usize(12..=bad.len()));
        match asked.reply(&bad) {
            Some(Reply::Addresses(addresses, _)) => assert!(addresses.len() <= ADDRESSES_MAX),
            Some(Reply::Alias { name, links, .. }) => {
                assert!(links <= LINKS_MAX && name.0.len() <= NAME_MAX);
            }
            Some(_) => {}
            None => continue,
        }
        read += 1;
    }
    assert!(read > 10_000, "{read}");
}
