use super::*;
use alloc::format;
use alloc::vec;

fn requests() -> Vec<Request<'static>> {
    let operations = [
        Operation::Open,
        Operation::Get(vec![b"a", b"b"]),
        Operation::Set(vec![(b"a", b""), (b"b", &[0, 255])]),
        Operation::Delete(vec![b"a"]),
        Operation::Exists(b"a"),
        Operation::Keys(ListFrom::Start),
        Operation::Keys(ListFrom::Behind(b"a")),
        Operation::Keys(ListFrom::Number(u64::MAX)),
        Operation::Increment(b"a", -1),
        Operation::Swap {
            key: b"a",
            seen: None,
            value: b"1",
        },
        Operation::Swap {
            key: b"a",
            seen: Some(b"1"),
            value: b"",
        },
    ];
    let with = |operation| Request {
        store: "default",
        operation,
    };
    operations.into_iter().map(with).collect()
}

fn answers() -> Vec<Answer<'static>> {
    vec![
        Answer::Done,
        Answer::Values(vec![None, Some(b""), Some(b"x")]),
        Answer::Exists(true),
        Answer::Keys(vec![b"a", b"b"], true),
        Answer::Keys(vec![], false),
        Answer::Number(i64::MIN),
        Answer::Denied,
        Answer::Failed("the disk is full"),
    ]
}

/// Returns a record's bytes behind its length, which is checked.
fn body(record: &[u8]) -> &[u8] {
    let (announced, body) = record.split_first_chunk().unwrap();
    assert_eq!(length(*announced), Ok(body.len()));
    body
}

#[test]
fn records_are_read_as_they_were_written_and_in_no_other_length() {
    for request in requests() {
        let record = request.encode().unwrap();
        let body = body(&record);
        assert_eq!(Request::decode(body), Ok(request));
        for end in 0..body.len() {
            assert!(Request::decode(&body[..end]).is_err(), "{body:?} {end}");
        }
        let longer = [body, b"!"].concat();
        assert_eq!(Request::decode(&longer), Err(WireError::TrailingBytes));
    }
    for answer in answers() {
        let record = answer.encode().unwrap();
        let body = body(&record);
        assert_eq!(Answer::decode(body), Ok(answer));
        for end in 0..body.len() {
            assert!(Answer::decode(&body[..end]).is_err(), "{body:?} {end}");
        }
        let longer = [body, b"!"].concat();
        assert_eq!(Answer::decode(&longer), Err(WireError::TrailingBytes));
    }
}

#[test]
fn oversized_values_are_refused_by_both_sides() {
    let with = |store, operation| Request { store, operation }.encode().map(drop);
    let refused = Err(WireError::BadValue);
    let key = vec![b'k'; KEY_MAX + 1];
    assert_eq!(with("s", Operation::Exists(&key[1..])), Ok(()));
    assert_eq!(with("s", Operation::Exists(&key)), refused);
    assert_eq!(with("s", Operation::Exists(b"")), refused);
    let value = vec![0; VALUE_MAX + 1];
    assert_eq!(with("s", Operation::Set(vec![(b"k", &value[1..])])), Ok(()));
    assert_eq!(with("s", Operation::Set(vec![(b"k", &value)])), refused);
    let keys: Vec<&[u8]> = vec![b"k"; ITEMS_MAX + 1];
    assert_eq!(with("s", Operation::Get(keys[1..].to_vec())), Ok(()));
    assert_eq!(with("s", Operation::Get(keys)), refused);
    let store = "s".repeat(STORE_MAX + 1);
    assert_eq!(with(&store[1..], Operation::Open), Ok(()));
    assert_eq!(with(&store, Operation::Open), refused);
    // Each value fits, but not all of them together.
    let pairs: Vec<(&[u8], &[u8])> = vec![(b"k", &value[1..]); 2];
    assert_eq!(with("s", Operation::Set(pairs)), refused);
}

#[test]
fn keys_that_are_no_text_are_refused_by_both_sides() {
    const LIE: &[u8] = b"k\xff";
    let swap = Operation::Swap {
        key: LIE,
        seen: None,
        value: b"1",
    };
    for operation in [
        Operation::Get(vec![b"k", LIE]),
        Operation::Set(vec![(LIE, b"1")]),
        Operation::Delete(vec![LIE]),
        Operation::Exists(LIE),
        Operation::Keys(ListFrom::Behind(LIE)),
        Operation::Increment(LIE, 1),
        swap,
    ] {
        let asked = format!("{operation:?}");
        let store = "s";
        let refused = Request { store, operation }.encode();
        assert_eq!(refused, Err(WireError::BadValue), "{asked}");
    }
    let listed = Answer::Keys(vec![LIE], false).encode();
    assert_eq!(listed, Err(WireError::BadValue));
    // The encoding by a guest that does not check by itself; then a valid text.
    let lie = [&b"\x01\0\0\0s\x05\x02\0\0\0"[..], LIE].concat();
    assert_eq!(Request::decode(&lie), Err(WireError::BadValue));
    let text = "\u{e9}".as_bytes();
    let spelled = [&b"\x01\0\0\0s\x05\x02\0\0\0"[..], text].concat();
    let operation = Operation::Exists(text);
    assert_eq!(
        Request::decode(&spelled),
        Ok(Request {
            store: "s",
            operation
        })
    );
}

#[test]
fn a_page_of_the_longest_keys_fits_a_record() {
    let key = [b'k'; KEY_MAX];
    let page = Answer::Keys(vec![&key; ITEMS_MAX], true);
    assert!(page.encode().is_ok());
}

#[test]
fn stores_and_their_interfaces_are_known_by_name() {
    for name in ["default", "a", "Users.2", "a_b-c"] {
        assert!(is_store_name(name), "{name}");
    }
    let long = "s".repeat(STORE_MAX + 1);
    for name in ["", ".", "-a", "a/b", "a b", "\u{e9}", &long] {
        assert!(!is_store_name(name), "{name}");
    }
    assert!(is_import("wasi:keyvalue/batch@0.2.0-draft2#get-many"));
    assert!(is_import("fermyon:spin/key-value@2.0.0#[static]store.open"));
    for import in [
        "wasi:keyvalue/store@0.2.0-draft",
        "wasi:keyvalue/store@0.2.0-draft3#open",
        "fermyon:spin/variables@2.0.0#get",
    ] {
        assert!(!is_import(import), "{import}");
    }
}

#[test]
fn a_length_or_count_that_lies_sizes_nothing() {
    assert_eq!(length([0xff; LENGTH_BYTES]), Err(WireError::BadValue));
    let most = u32::try_from(RECORD_MAX).unwrap();
    assert_eq!(length(most.to_le_bytes()), Ok(RECORD_MAX));
    assert!(length((most + 1).to_le_bytes()).is_err());
    // A store without a name, and a batch of four billion keys.
    let lie = [0, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(Request::decode(&lie), Err(WireError::BadValue));
    let neither = [3, 2];
    assert_eq!(Answer::decode(&neither), Err(WireError::BadValue));
}
