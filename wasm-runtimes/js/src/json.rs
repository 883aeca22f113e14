//! A reader of JSON for the files that describe a script: its table of modules and its source maps.
//!
//! QuickJS's own parser would leave its values in the memory that the node freezes.

use std::borrow::Cow;

/// The deepest nesting that is read: source maps and tables of modules need five levels.
const DEPTH: u32 = 32;

/// A value. Numbers have no use here.
#[derive(Debug, PartialEq)]
pub(crate) enum Json<'a> {
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
    Other,
}

impl<'a> Json<'a> {
    /// Parses a whole text. Returns `None` if the text is not JSON. Members for whose name `skips`
    /// returns true are read over.
    pub(crate) fn parse(text: &'a str, skips: fn(&str) -> bool) -> Option<Self> {
        let mut reader = Reader {
            text,
            at: 0,
            depth: 0,
            skips,
        };
        let value = reader.value()?;
        reader.space();
        (reader.at == text.len()).then_some(value)
    }

    /// Returns the member of an object with that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        members
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    skips: fn(&str) -> bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self) -> Option<Json<'a>> {
        self.space();
        match self.peek()? {
            b'"' => self.string().map(Json::Text),
            b'[' => self.nested(Self::list),
            b'{' => self.nested(Self::object),
            _ => {
                let from = self.at;
                while matches!(
                    self.peek(),
                    Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.')
                ) {
                    self.at += 1;
                }
                let word = self.text.get(from..self.at)?;
                let is_value =
                    matches!(word, "true" | "false" | "null") || word.parse::<f64>().is_ok();
                is_value.then_some(Json::Other)
            }
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Option<Json<'a>>) -> Option<Json<'a>> {
        self.at += 1;
        self.depth += 1;
        let value = (self.depth <= DEPTH).then(|| read(self)).flatten();
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Option<Json<'a>> {
        let mut items = Vec::new();
        if self.take(b']').is_some() {
            return Some(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            if self.take(b',').is_none() {
                return self.take(b']').map(|()| Json::List(items));
            }
        }
    }

    fn object(&mut self) -> Option<Json<'a>> {
        let mut members = Vec::new();
        if self.take(b'}').is_some() {
            return Some(Json::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.take(b':')?;
            let value = self.value()?;
            if !(self.skips)(&name) {
                members.push((name, value));
            }
            if self.take(b',').is_none() {
                return self.take(b'}').map(|()| Json::Object(members));
            }
        }
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.take(b'"')?;
        let from = self.at;
        let rest = self.text.get(from..)?;
        let end = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
        self.at += end;
        if self.peek()? == b'"' {
            self.at += 1;
            return rest.get(..end).map(Cow::Borrowed);
        }
        let mut text = rest.get(..end)?.to_owned();
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(Cow::Owned(text));
                }
                b'\\' => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => {
                    let rest = self.text.get(self.at..)?;
                    let end = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
                    text.push_str(rest.get(..end)?);
                    self.at += end;
                }
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                let is_pair = self.text.get(self.at..self.at + 2) == Some("\\u");
                if !is_pair {
                    return Some(char::REPLACEMENT_CHARACTER);
                }
                let before = self.at;
                self.at += 2;
                let second = self.hex()?;
                if !(0xdc00..0xe000).contains(&second) {
                    // The second escape is a character of its own.
                    self.at = before;
                    return Some(char::REPLACEMENT_CHARACTER);
                }
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}
