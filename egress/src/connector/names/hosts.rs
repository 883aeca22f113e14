//! The contents of `/etc/hosts`.

use std::io;
use std::net::IpAddr;

/// Names and their addresses. The file's text is kept and indexed, because some hosts have lists of
/// a hundred thousand names in it, and the connector has little memory.
#[derive(Debug, Default)]
pub struct Hosts {
    text: Vec<u8>,
    /// Sorted by name, and then by place in the file.
    entries: Vec<Entry>,
    addresses: Vec<IpAddr>,
}

/// A name on a line.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the name is in the text.
    start: u32,
    length: u32,
    /// Which of the addresses is its line's.
    address: u32,
}

impl Hosts {
    /// Reads the file. Like the resolver of libc, it skips lines that do not begin with an address.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the file is larger than 4 GiB.
    pub fn read(mut text: Vec<u8>) -> io::Result<Self> {
        if u32::try_from(text.len()).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        text.make_ascii_lowercase();
        let (mut entries, mut addresses) = (Vec::new(), Vec::new());
        let mut at = 0;
        for line in text.split(|byte| *byte == b'\n') {
            read_line(line, at, &mut entries, &mut addresses);
            at += line.len() + 1;
        }
        // Stable: addresses of a name stay in the file's order.
        entries.sort_by(|one, other| one.name(&text).cmp(other.name(&text)));
        entries.shrink_to_fit();
        Ok(Self {
            text,
            entries,
            addresses,
        })
    }

    /// Returns the addresses of a name in lower case, in the order of the file.
    pub fn addresses(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let name = name.as_bytes();
        let first = self
            .entries
            .partition_point(|entry| entry.name(&self.text) < name);
        let entries = self.entries.iter().skip(first);
        entries
            .take_while(move |entry| entry.name(&self.text) == name)
            .filter_map(|entry| self.addresses.get(usize::try_from(entry.address).ok()?))
            .copied()
    }
}

impl Entry {
    fn name<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let [start, length] = [self.start, self.length].map(|it| usize::try_from(it).unwrap_or(0));
        text.get(start..start + length).unwrap_or_default()
    }
}

/// Reads a line that begins at `at`: an address, names, and perhaps a comment.
fn read_line(line: &[u8], at: usize, entries: &mut Vec<Entry>, addresses: &mut Vec<IpAddr>) {
    let end = line.iter().position(|byte| *byte == b'#');
    let line = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
    let mut place = at;
    let mut words = line.split(u8::is_ascii_whitespace).filter_map(|word| {
        let start = place;
        place += word.len() + 1;
        (!word.is_empty()).then_some((start, word))
    });
    let address = words
        .next()
        .and_then(|(_, word)| std::str::from_utf8(word).ok());
    let Some(address) = address.and_then(|word| word.parse().ok()) else {
        return;
    };
    let Ok(number) = u32::try_from(addresses.len()) else {
        return;
    };
    addresses.push(address);
    entries.extend(words.filter_map(|(start, word)| {
        // A dot at the end means nothing here.
        let word = word.strip_suffix(b".").unwrap_or(word);
        Some(Entry {
            start: u32::try_from(start).ok()?,
            length: u32::try_from(word.len()).ok()?,
            address: number,
        })
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &[u8]) -> Hosts {
        Hosts::read(text.to_vec()).unwrap()
    }

    fn addresses(hosts: &Hosts, name: &str) -> Vec<String> {
        hosts.addresses(name).map(|it| it.to_string()).collect()
    }

    #[test]
    fn names_have_the_addresses_of_their_lines() {
        let hosts = hosts(
            b"# 10.9.9.9 commented\n127.0.0.1\tlocalhost  One.Example. # two.example\r\n\
              ::1 localhost ip6-localhost\n  10.0.0.1 one.example\nnonsense three.example\n\
              10.0.0.2\n\xff\xfe four.example\n10.0.0.3 last",
        );
        assert_eq!(addresses(&hosts, "localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(addresses(&hosts, "one.example"), ["127.0.0.1", "10.0.0.1"]);
        assert_eq!(addresses(&hosts, "last"), ["10.0.0.3"]);
        for none in [
            "commented",
            "two.example",
            "three.example",
            "four.example",
            "",
            "one",
        ] {
            assert_eq!(addresses(&hosts, none), [""; 0], "{none}");
        }
        assert_eq!(addresses(&Hosts::default(), "localhost"), [""; 0]);
    }

    #[test]
    fn a_list_of_many_names_takes_little_more_than_its_text() {
        let lines = (0..100_000).map(|number| format!("0.0.0.0 ads{number}.example\n"));
        let text: String = lines.collect();
        let hosts = hosts(text.as_bytes());
        assert_eq!(addresses(&hosts, "ads77777.example"), ["0.0.0.0"]);
        let index = hosts.entries.capacity() * size_of::<Entry>()
            + hosts.addresses.capacity() * size_of::<IpAddr>();
        assert!(index < 2 * text.len(), "{index} bytes for {}", text.len());
    }
}
