//! The subset of protocol buffers that the shim needs: writes fields of strings, bytes and
//! messages, and reads messages with bounds checks.

/// A message being written.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Appends a field of bytes, a string or a message.
    #[must_use]
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Returns the encoded message.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint of any integer type.
    Number(u64),
    /// Bytes, a string, or a message.
    Bytes(&'a [u8]),
    /// A fixed-width value, which is skipped.
    Other,
}

/// An iterator over the fields of a message. It yields at most one error, and nothing after it.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

/// The error that bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Reader<'a> {
    /// Creates a reader of an encoded message.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the last value of a field of bytes, which takes precedence, or `None` if the field
    /// is absent.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the bytes are not a message.
    pub fn last(bytes: &'a [u8], field: u32) -> Result<Option<&'a [u8]>, Malformed> {
        let mut last = None;
        for found in Self::new(bytes) {
            if let (number, Value::Bytes(value)) = found?
                && number == field
            {
                last = Some(value);
            }
        }
        Ok(last)
    }

    /// Returns the last value of a string field.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the bytes are not a message or the field is not UTF-8.
    pub fn text(bytes: &'a [u8], field: u32) -> Result<Option<&'a str>, Malformed> {
        let value = Self::last(bytes, field)?;
        value
            .map(|value| std::str::from_utf8(value).map_err(|_| Malformed))
            .transpose()
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], Malformed> {
        let bytes = usize::try_from(bytes).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let bytes = self.varint()?;
                Value::Bytes(self.take(bytes)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_can_be_read() {
        let long = vec![7; 300];
        let message = Writer::default()
            .bytes(1, b"name")
            .bytes(200, &long)
            .bytes(1, "later".as_bytes())
            .done();
        assert_eq!(Reader::text(&message, 1), Ok(Some("later")));
        assert_eq!(Reader::last(&message, 200), Ok(Some(&long[..])));
        assert_eq!(Reader::last(&message, 3), Ok(None));
    }

    #[test]
    fn unknown_wire_types_are_skipped_and_malformed_input_ends_reading() {
        let mixed = [
            0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4, 0x18, 0x96, 1,
        ];
        let fields: Vec<_> = Reader::new(&mixed).map(Result::unwrap).collect();
        assert_eq!(
            fields,
            [
                (1, Value::Other),
                (2, Value::Other),
                (3, Value::Number(150))
            ]
        );
        for nonsense in [
            &[0x0a][..],
            &[0x0a, 5, 1],
            &[0x0b],
            &[0xff; 11],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0x09, 1],
        ] {
            let mut reader = Reader::new(nonsense);
            assert_eq!(reader.next(), Some(Err(Malformed)), "{nonsense:?}");
            assert_eq!(reader.next(), None);
        }
        assert_eq!(Reader::text(&[0x0a, 1, 0xff], 1), Err(Malformed));
    }
}
