//! The wire formats of the mailbox. Input: which one, and its bytes.

use faasw_abi::wire::{
    RequestHead, ResponseHead, SeedConfig, WireError, decode_fields, encode_fields,
};

use crate::Target;
use crate::input::Input;

/// An empty string takes four bytes there, and six times as many here; vectors grow by
/// doubling.
pub const TARGET: Target = Target {
    name: "wire",
    read,
    memory: 4 << 10,
    per_byte: 32,
    executions: 50_000,
};

/// What is read is what was written, exactly: no two messages mean the same.
fn again<T>(bytes: &[u8], decoded: Result<T, WireError>, encode: fn(&T) -> Vec<u8>) -> bool {
    let Ok(decoded) = decoded else {
        return false;
    };
    assert_eq!(encode(&decoded), bytes);
    true
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let (which, bytes) = (input.byte(), input.rest());
    match which % 4 {
        0 => again(bytes, RequestHead::decode(bytes), RequestHead::encode),
        1 => again(bytes, ResponseHead::decode(bytes), ResponseHead::encode),
        2 => again(bytes, decode_fields(bytes), |fields| encode_fields(fields)),
        _ => again(bytes, SeedConfig::decode(bytes), SeedConfig::encode),
    }
}
