//! Records of the key-value store: a guest's requests, which the node decodes, and the node's
//! answers, which the guest decodes. Input: which of the two (0: a request; any other: an answer),
//! then the record without its length.

use faasw_abi::store::{Answer, LENGTH_BYTES, RECORD_MAX, Request, length};

use crate::Target;

/// The smallest item of a list is a byte, and takes an entry of a list that grows by doubling. The
/// decoded record is encoded again behind its length.
pub const TARGET: Target = Target {
    name: "store",
    read,
    memory: 4 << 10,
    per_byte: 80,
    executions: 50_000,
};

fn read(bytes: &[u8]) -> bool {
    let Some((which, record)) = bytes.split_first() else {
        return false;
    };
    let again = match which {
        0 => Request::decode(record).and_then(|request| request.encode()),
        _ => Answer::decode(record).and_then(|answer| answer.encode()),
    };
    let Ok(again) = again else {
        return false;
    };
    let Some((announced, body)) = again.split_first_chunk::<LENGTH_BYTES>() else {
        panic!("a record without a length");
    };
    // A record has one encoding only, and its length is right.
    assert_eq!(body, record);
    assert!(record.len() <= RECORD_MAX);
    assert_eq!(length(*announced), Ok(record.len()));
    true
}
