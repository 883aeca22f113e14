//! Random changes to bytes, of the kinds that break parsers.

use fastrand::Rng;

/// Numbers near limits of formats and types.
const EDGES: [u64; 22] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    127,
    128,
    255,
    256,
    4095,
    4096,
    4097,
    (64 << 10) + 1,
    (128 << 10) - 1,
    128 << 10,
    1 << 20,
    (1 << 20) + 1,
    u32::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// The most bytes of an input.
const INPUT_MAX: usize = 72 << 10;

/// Changes an input at random. Parts of `other` may be put into it.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    for _ in 0..1 + random.usize(..8) {
        let at = place(bytes, random);
        let until = at + random.usize(..=bytes.len() - at);
        match random.usize(..10) {
            0 | 1 => flip(bytes, at, random),
            2 | 3 => put_number(bytes, at, random),
            4 => put_number(bytes, at & !7, random),
            5 => bytes.truncate(until),
            6 => drop(bytes.drain(at..until)),
            7 => {
                let again = bytes.get(at..until).unwrap_or_default().to_vec();
                for _ in 0..1 + random.usize(..4) {
                    bytes.splice(at..at, again.iter().copied());
                }
            }
            8 => {
                let from = place(other, random);
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            _ => bytes.extend((0..random.usize(..64)).map(|_| random.u8(..))),
        }
        bytes.truncate(INPUT_MAX);
    }
}

/// Returns a random position in `bytes`; their start if they are empty.
fn place(bytes: &[u8], random: &mut Rng) -> usize {
    random.usize(..bytes.len().max(1))
}

fn flip(bytes: &mut [u8], at: usize, random: &mut Rng) {
    if let Some(byte) = bytes.get_mut(at) {
        if random.bool() {
            *byte ^= 1 << random.u8(..8)
        } else {
            *byte = random.u8(..)
        }
    }
}

/// Overwrites bytes with a number of a random width.
fn put_number(bytes: &mut [u8], at: usize, random: &mut Rng) {
    let edge = EDGES.get(random.usize(..EDGES.len())).copied().unwrap_or(0);
    let number = match random.usize(..3) {
        0 => edge.wrapping_add(random.u64(..16)),
        _ => edge,
    };
    let width = 1 << random.usize(..4);
    let place = bytes.iter_mut().skip(at).take(width);
    for (byte, new) in place.zip(number.to_le_bytes()) {
        *byte = new;
    }
}
