//! The mappings of a source map (ECMA-426), which are decoded once, as far as they are needed.

/// Where a part of a generated line comes from. Lines and columns begin at 0.
struct Segment {
    generated_column: u32,
    source: u32,
    line: u32,
    column: u32,
}

/// The mappings of a module.
pub(crate) struct Mappings {
    /// Base64 VLQ, as in the file: lines end with `;`, segments with `,`.
    text: Box<str>,
    /// How much of the text was decoded: a number of complete lines.
    decoded: usize,
    /// The source, line and column of the last segment, to which the next one is relative.
    last: [i64; 3],
    segments: Vec<Segment>,
    /// For each decoded line, the number of segments up to its end.
    ends: Vec<usize>,
    /// Whether the text has no further lines, or is malformed.
    has_ended: bool,
}

impl Mappings {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            decoded: 0,
            last: [0; 3],
            segments: Vec::new(),
            ends: Vec::new(),
            has_ended: false,
        }
    }

    /// Returns source, line and column of a position.
    pub(crate) fn find(&mut self, line: u32, column: usize) -> Option<(u32, u32, u32)> {
        let line = line as usize;
        while self.ends.len() <= line && !self.has_ended {
            if self.decode_line().is_none() {
                self.has_ended = true;
            }
        }
        let end = *self.ends.get(line)?;
        let begin = line
            .checked_sub(1)
            .map_or(0, |before| self.ends.get(before).copied().unwrap_or(0));
        let segments = self.segments.get(begin..end)?;
        let behind = segments.partition_point(|at| at.generated_column as usize <= column);
        // Text before the first segment of a line belongs to that segment.
        let found = segments.get(behind.saturating_sub(1))?;
        Some((found.source, found.line, found.column))
    }

    /// Decodes one more line. Returns `None` if it is malformed.
    fn decode_line(&mut self) -> Option<()> {
        let rest = self.text.get(self.decoded..)?;
        let line = rest.split(';').next()?;
        examine(line.len() + 1);
        let mut generated = 0_i64;
        for segment in line.split(',').filter(|segment| !segment.is_empty()) {
            let mut fields = Fields(segment.bytes());
            generated += fields.next()??;
            let Some(first) = fields.next() else {
                continue;
            };
            let changes = [first?, fields.next()??, fields.next()??];
            for (value, change) in self.last.iter_mut().zip(changes) {
                *value += change;
            }
            let [source, line, column] = self.last;
            self.segments.push(Segment {
                generated_column: u32::try_from(generated).ok()?,
                source: u32::try_from(source).ok()?,
                line: u32::try_from(line).ok()?,
                column: u32::try_from(column).ok()?,
            });
        }
        self.has_ended = line.len() == rest.len();
        self.decoded += line.len() + 1;
        self.ends.push(self.segments.len());
        Some(())
    }
}

#[cfg(test)]
thread_local! {
    /// How many characters of mappings were decoded.
    pub(crate) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts work, so that tests can check that nothing is decoded twice.
fn examine(_count: usize) {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + _count);
}

/// The numbers of a segment, in base64 VLQ. An item is `None` if it is malformed.
struct Fields<'a>(std::str::Bytes<'a>);

impl Iterator for Fields<'_> {
    type Item = Option<i64>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut value = 0_i64;
        let mut shift = 0;
        loop {
            let Some(byte) = self.0.next() else {
                return (shift > 0).then_some(None);
            };
            let Some(digit) = digit(byte).filter(|_| shift <= 30) else {
                return Some(None);
            };
            value |= i64::from(digit & 31) << shift;
            shift += 5;
            if digit & 32 == 0 {
                let magnitude = value >> 1;
                return Some(Some(if value & 1 == 0 {
                    magnitude
                } else {
                    -magnitude
                }));
            }
        }
    }
}

/// Returns the value of a digit of base64.
pub(crate) fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}
