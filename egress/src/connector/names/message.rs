//! Messages of the DNS (RFC 1035), as much as a stub resolver needs.
//!
//! Everything that a server sends is read in place and bounded: records, links of a chain of
//! aliases, pointers of a name, addresses. Nothing is allocated for a record that is not used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::connector::dial::ADDRESSES_MAX;

/// Most records of an answer that are read. A name with more addresses has enough of them, and a
/// function cannot have the connector read thousands.
pub const RECORDS_MAX: usize = 256;

/// Most aliases on the way from a name to its addresses. Resolvers allow 8 to 16.
pub const LINKS_MAX: usize = 8;

/// Most records of the authority section that are searched for the end of a chain.
const AUTHORITY_MAX: usize = 8;

/// Most pointers in one name. Each points further back than the last, so that none can loop; this
/// limits the work for a name that consists only of pointers.
const POINTERS_MAX: usize = 32;

/// Most bytes of a name (RFC 1035, 2.3.4).
const NAME_MAX: usize = 255;

/// Bytes of the header.
const HEADER: usize = 12;

/// Types and class of records (RFC 1035, 3.2; RFC 3596).
const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const AAAA: u16 = 28;
const IN: u16 = 1;

/// Flags of a header: a response, its operation, truncated, recursion is wanted.
const RESPONSE: u16 = 0x8000;
const OPERATION: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const RECURSION: u16 = 0x0100;

/// Response codes of conclusive answers: the name exists; it does not.
pub const NO_ERROR: u16 = 0;
pub const NO_NAME: u16 = 3;

/// A name as messages encode it, without pointers and in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireName(Vec<u8>);

impl WireName {
    /// Spells a name; `None` if it is none.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(text.len() + 2);
        for label in text.split('.') {
            let length = u8::try_from(label.len())
                .ok()
                .filter(|it| (1..64).contains(it))?;
            bytes.push(length);
            bytes.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        bytes.push(0);
        (bytes.len() <= NAME_MAX).then_some(Self(bytes))
    }

    /// Spells it for people.
    #[cfg(test)]
    pub fn to_text(&self) -> String {
        let (mut labels, mut rest) = (Vec::new(), self.0.as_slice());
        while let Some((length, behind)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, behind) = behind.split_at(usize::from(*length));
            labels.push(String::from_utf8_lossy(label).into_owned());
            rest = behind;
        }
        labels.join(".")
    }

    /// The root, about which every server can answer.
    pub fn root() -> Self {
        Self(vec![0])
    }
}

/// The type of record that a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Name servers. A query for those of the root shows whether a server answers at all.
    Ns,
}

impl RecordType {
    fn number(self) -> u16 {
        match self {
            Self::A => A,
            Self::Aaaa => AAAA,
            Self::Ns => NS,
        }
    }
}

/// A question to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// A random number that the answer repeats, so that only the server can answer.
    pub id: u16,
    /// The name.
    pub name: WireName,
    /// The type.
    pub kind: RecordType,
}

/// A server's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Some of the name's addresses, and for how many seconds they hold.
    Addresses(Vec<IpAddr>, u32),
    /// The name is an alias of another, for which the answer has nothing.
    Alias {
        /// The other name.
        name: WireName,
        /// How many aliases there are on the way.
        links: usize,
        /// For how many seconds they hold.
        ttl: u32,
    },
    /// The name does not exist or has no address: the response code.
    Nothing(u16),
    /// The server has no conclusive answer: its response code, if the message has a valid one.
    Failed(Option<u16>),
    /// The answer did not fit in a datagram.
    Truncated,
}

impl Question {
    /// Spells the question.
    pub fn to_message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER + self.name.0.len() + 4);
        for word in [self.id, RECURSION, 1, 0, 0, 0] {
            message.extend_from_slice(&word.to_be_bytes());
        }
        message.extend_from_slice(&self.name.0);
        message.extend_from_slice(&self.kind.number().to_be_bytes());
        message.extend_from_slice(&IN.to_be_bytes());
        message
    }

    /// Reads an answer to this question. Returns `None` for any other message.
    pub fn reply(&self, message: &[u8]) -> Option<Reply> {
        let flags = word(message, 2)?;
        let is_answer = word(message, 0)? == self.id && flags & (RESPONSE | OPERATION) == RESPONSE;
        if !is_answer {
            return None;
        }
        let code = flags & 0xf;
        let questions = word(message, 4)?;
        if questions == 0 && !matches!(code, NO_ERROR | NO_NAME) {
            // A server that cannot read the question does not repeat it.
            return Some(Reply::Failed(Some(code)));
        }
        let behind = skip_name(message, HEADER)?;
        let is_repeated = questions == 1
            && name_is(message, HEADER, &self.name)?
            && word(message, behind)? == self.kind.number()
            && word(message, behind + 2)? == IN;
        if !is_repeated {
            return None;
        }
        Some(match code {
            _ if flags & TRUNCATED != 0 => Reply::Truncated,
            NO_ERROR => self
                .records(message, behind + 4)
                .unwrap_or(Reply::Failed(None)),
            NO_NAME => Reply::Nothing(NO_NAME),
            code => Reply::Failed(Some(code)),
        })
    }

    /// Reads what the answer has; `None` if it breaks the protocol or a bound.
    fn records(&self, message: &[u8], start: usize) -> Option<Reply> {
        let count = usize::from(word(message, 6)?);
        let (records, behind) = self.useful_records(message, start, count.min(RECORDS_MAX))?;
        let (mut name, mut links, mut ttl) = (self.name.clone(), 0, u32::MAX);
        while let Some(alias) = find(message, &records, CNAME, &name)? {
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            ttl = ttl.min(alias.ttl);
            name = read_name(message, alias.data.start)?;
        }
        let mut addresses = Vec::new();
        for record in &records {
            if addresses.len() == ADDRESSES_MAX {
                break;
            }
            if record.kind == self.kind.number() && name_is(message, record.owner, &name)? {
                let data = message.get(record.data.clone())?;
                addresses.push(match self.kind {
                    RecordType::Aaaa => Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into(),
                    _ => Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into(),
                });
                ttl = ttl.min(record.ttl);
            }
        }
        if !addresses.is_empty() {
            return Some(Reply::Addresses(addresses, ttl));
        }
        // A server that follows aliases itself adds the zone of the last one to its answer.
        let is_end =
            links == 0 || (count <= RECORDS_MAX && has_authority(message, behind).unwrap_or(false));
        Some(if is_end {
            Reply::Nothing(NO_ERROR)
        } else {
            Reply::Alias { name, links, ttl }
        })
    }

    /// Reads the places of records that can matter here, and the end of all.
    fn useful_records(
        &self,
        message: &[u8],
        start: usize,
        count: usize,
    ) -> Option<(Vec<Record>, usize)> {
        let (mut records, mut at) = (Vec::new(), start);
        for _ in 0..count {
            let (record, behind) = Record::read(message, at)?;
            at = behind;
            let is_useful = record.kind == CNAME || record.kind == self.kind.number();
            if record.class == IN && is_useful && self.kind != RecordType::Ns {
                records.push(record);
            }
        }
        Some((records, at))
    }
}

/// A record, by its places in the message.
#[derive(Clone, Debug)]
struct Record {
    owner: usize,
    kind: u16,
    class: u16,
    ttl: u32,
    data: Range<usize>,
}

impl Record {
    /// Reads a record, and where the next one begins.
    fn read(message: &[u8], owner: usize) -> Option<(Self, usize)> {
        let at = skip_name(message, owner)?;
        let seconds = u32::from(word(message, at + 4)?) << 16 | u32::from(word(message, at + 6)?);
        let start = at + 10;
        let end = start + usize::from(word(message, at + 8)?);
        message.get(start..end)?;
        let record = Self {
            owner,
            kind: word(message, at)?,
            class: word(message, at + 2)?,
            // RFC 2181, 8: what looks negative is 0.
            ttl: i32::try_from(seconds).map_or(0, i32::cast_unsigned),
            data: start..end,
        };
        Some((record, end))
    }
}

/// Finds a name's record of a type. Returns `None` if a name is malformed.
fn find(message: &[u8], records: &[Record], kind: u16, name: &WireName) -> Option<Option<Record>> {
    for record in records.iter().filter(|record| record.kind == kind) {
        if name_is(message, record.owner, name)? {
            return Some(Some(record.clone()));
        }
    }
    Some(None)
}

/// Returns whether the authority section, which begins at `at`, has the start of a zone.
fn has_authority(message: &[u8], mut at: usize) -> Option<bool> {
    let count = usize::from(word(message, 8)?);
    for _ in 0..count.min(AUTHORITY_MAX) {
        let (record, behind) = Record::read(message, at)?;
        if record.kind == SOA {
            return Some(true);
        }
        at = behind;
    }
    Some(false)
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// The labels of a name in a message, through its pointers; the last one is empty.
struct Labels<'a> {
    message: &'a [u8],
    at: usize,
    /// Where the part of the name begins that is being read: pointers lead before it.
    part: usize,
    pointers: usize,
}

impl<'a> Labels<'a> {
    fn new(message: &'a [u8], at: usize) -> Self {
        Self {
            message,
            at,
            part: at,
            pointers: 0,
        }
    }

    /// Reads the next label, its length before it. Returns `None` if the name is malformed.
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let length = usize::from(*self.message.get(self.at)?);
            match length {
                0..64 => {
                    let label = self.message.get(self.at..self.at + 1 + length)?;
                    self.at += label.len();
                    return Some(label);
                }
                0xc0.. => {
                    let target = usize::from(word(self.message, self.at)? & 0x3fff);
                    self.pointers += 1;
                    if target >= self.part || self.pointers > POINTERS_MAX {
                        return None;
                    }
                    (self.at, self.part) = (target, target);
                }
                _ => return None,
            }
        }
    }
}

/// Reads a name.
fn read_name(message: &[u8], at: usize) -> Option<WireName> {
    let mut labels = Labels::new(message, at);
    let mut name = Vec::new();
    loop {
        let label = labels.next()?;
        name.extend(label.iter().map(u8::to_ascii_lowercase));
        match label.len() {
            _ if name.len() > NAME_MAX => return None,
            1 => return Some(WireName(name)),
            _ => {}
        }
    }
}

/// Returns whether a message has this name at `at`; `None` if the name there is malformed.
fn name_is(message: &[u8], at: usize, name: &WireName) -> Option<bool> {
    let mut labels = Labels::new(message, at);
    let mut rest = name.0.as_slice();
    loop {
        let label = labels.next()?;
        let Some((front, behind)) = rest.split_at_checked(label.len()) else {
            return Some(false);
        };
        if !front.eq_ignore_ascii_case(label) {
            return Some(false);
        }
        if label.len() == 1 {
            return Some(true);
        }
        rest = behind;
    }
}

/// Returns where a name ends, without following its pointers.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    let most = at + NAME_MAX;
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..64 => at += 1 + length,
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
        if at > most {
            return None;
        }
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
