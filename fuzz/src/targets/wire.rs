//! The wire formats of the mailbox. Input: the number of the format, and its bytes.

use faasw_abi::command::{Command, Commands};
use faasw_abi::wire::{RequestHead, ResponseHead, WireError, decode_trailers, encode_trailers};

use crate::Target;
use crate::input::Input;

/// An empty string takes four bytes encoded, and six times as many decoded. Vectors grow by
/// doubling.
pub const TARGET: Target = Target {
    name: "wire",
    read,
    memory: 4 << 10,
    per_byte: 32,
    executions: 50_000,
};

/// Checks that the decoded message is encoded again to the same bytes: no two encodings mean the
/// same.
fn again<T>(bytes: &[u8], decoded: Result<T, WireError>, encode: fn(&T) -> Vec<u8>) -> bool {
    let Ok(decoded) = decoded else {
        return false;
    };
    assert_eq!(encode(&decoded), bytes);
    true
}

/// Decodes all commands as a guest does.
fn commands(mut bytes: &[u8]) -> Result<Vec<Command>, WireError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (command, length) = Command::decode_first(bytes)?;
        assert!(length > 0 && length <= bytes.len());
        all.push(command);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(all)
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let (which, bytes) = (input.byte(), input.rest());
    match which % 4 {
        0 => again(bytes, RequestHead::decode(bytes), RequestHead::encode),
        1 => again(bytes, ResponseHead::decode(bytes), ResponseHead::encode),
        2 => again(bytes, decode_trailers(bytes), |fields| {
            encode_trailers(fields)
        }),
        _ => again(bytes, commands(bytes), |all| {
            Commands::of(all).bytes().to_vec()
        }),
    }
}
