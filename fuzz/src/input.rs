//! A reader that takes a fuzz input apart.

/// Bytes of an input. After their end it continues with zeroes.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether no bytes are left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next bytes; fewer at the end.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns all bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(self.0.len())
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for (byte, taken) in array.iter_mut().zip(self.take(N)) {
            *byte = *taken;
        }
        array
    }

    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
