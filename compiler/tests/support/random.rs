//! Random numbers whose seed a failing test prints.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator (xorshift*) of a seed that `FAASW_TEST_SEED` can repeat.
pub struct Random(u64);

impl Random {
    /// Begins with a seed from the environment or the clock, and prints it.
    pub fn seeded() -> Self {
        let seed = std::env::var("FAASW_TEST_SEED").map_or_else(
            |_| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                now.as_secs() ^ (u64::from(now.subsec_nanos()) << 32)
            },
            |seed| seed.parse().unwrap(),
        );
        println!("to repeat: FAASW_TEST_SEED={seed}");
        Self(seed | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(limit).unwrap()).unwrap()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number().to_le_bytes()[3]).collect()
    }
}
