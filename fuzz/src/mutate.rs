//! Random changes to bytes, of the kinds that break parsers.

/// A generator of numbers (SplitMix64) that can be begun anew.
pub struct Dice(u64);

impl Dice {
    /// One whose numbers all follow from `origin`.
    pub fn new(origin: u64) -> Self {
        Self(origin)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() as usize).checked_rem(bound).unwrap_or(0)
    }
}

/// Numbers at which something ends.
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

/// Most bytes of an input.
const INPUT_MAX: usize = 72 << 10;

/// Makes another input of one.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    for _ in 0..1 + dice.below(8) {
        let at = dice.below(bytes.len());
        let until = at + dice.below(bytes.len() - at + 1);
        match dice.below(10) {
            0 | 1 => flip(bytes, at, dice),
            2 | 3 => put_number(bytes, at, dice),
            4 => put_number(bytes, at & !7, dice),
            5 => bytes.truncate(until),
            6 => drop(bytes.drain(at..until)),
            7 => {
                let again = bytes.get(at..until).unwrap_or_default().to_vec();
                for _ in 0..1 + dice.below(4) {
                    bytes.splice(at..at, again.iter().copied());
                }
            }
            8 => {
                let from = dice.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            _ => bytes.extend((0..dice.below(64)).map(|_| dice.number() as u8)),
        }
        bytes.truncate(INPUT_MAX);
    }
}

fn flip(bytes: &mut [u8], at: usize, dice: &mut Dice) {
    if let Some(byte) = bytes.get_mut(at) {
        match dice.below(2) {
            0 => *byte ^= 1 << dice.below(8),
            _ => *byte = dice.number() as u8,
        }
    }
}

/// Puts a number of some width over what is there.
fn put_number(bytes: &mut [u8], at: usize, dice: &mut Dice) {
    let edge = EDGES.get(dice.below(EDGES.len())).copied().unwrap_or(0);
    let number = match dice.below(3) {
        0 => edge.wrapping_add(dice.number() % 16),
        _ => edge,
    };
    let width = 1 << dice.below(4);
    let place = bytes.iter_mut().skip(at).take(width);
    for (byte, new) in place.zip(number.to_le_bytes()) {
        *byte = new;
    }
}
