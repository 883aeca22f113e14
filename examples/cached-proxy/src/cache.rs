//! Answers in the key-value store, and how long they may be used (RFC 9111, what of it a cache
//! needs that stores no answer it would have to ask about again).
//!
//! The store has no expiry, so the cache is bounded by its keys: a URL has one of [`SLOTS`], which
//! it takes from the URL that was there.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

use spin_sdk::http::Headers;
use spin_sdk::key_value::Store;

/// So many answers are kept at most: 128 MiB, half of what a store has unless the node says
/// otherwise.
const SLOTS: u64 = 512;

/// So many bytes a kept answer's body has at most. Larger ones only pass.
pub const LARGEST_BODY: usize = 240 << 10;

/// So many bytes its URL and headers have at most.
const LARGEST_HEAD: usize = 16 << 10;

/// What a `Cache-Control` says, of a request or of an answer.
#[derive(Default)]
pub struct Control {
    no_store: bool,
    no_cache: bool,
    private: bool,
    max_age: Option<u64>,
    shared_max_age: Option<u64>,
}

impl Control {
    pub fn of(fields: &[Vec<u8>]) -> Self {
        let mut control = Self::default();
        for field in fields {
            // A comma within quotes makes pieces that are no directives, which say nothing.
            for directive in String::from_utf8_lossy(field).split(',') {
                let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
                // A time that cannot be read has passed.
                let seconds = || Some(value.trim().trim_matches('"').parse().unwrap_or(0));
                match name.trim().to_ascii_lowercase().as_str() {
                    "no-store" => control.no_store = true,
                    "no-cache" => control.no_cache = true,
                    "private" => control.private = true,
                    "max-age" => control.max_age = seconds(),
                    "s-maxage" => control.shared_max_age = seconds(),
                    _ => {}
                }
            }
        }
        control
    }

    /// Of a request: whether it may be answered from the store.
    pub fn allows_stored(&self) -> bool {
        !self.no_store && !self.no_cache && self.max_age != Some(0)
    }

    /// Of a request: whether its answer may be stored.
    pub fn allows_storing(&self) -> bool {
        !self.no_store
    }

    /// Of an answer: for how many seconds a cache of many users may use it.
    fn lifetime(&self) -> u64 {
        if self.no_store || self.no_cache || self.private {
            return 0;
        }
        self.shared_max_age.or(self.max_age).unwrap_or(0)
    }
}

/// An answer with the status 200.
pub struct Entry {
    url: String,
    /// When it came, in seconds since 1970, and how old it was then.
    came: u64,
    age_then: u64,
    /// At this age it is used no longer.
    lifetime: u64,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Entry {
    /// An entry, still without its body, for an answer with these headers, if it may be kept.
    pub fn of_headers(url: &str, headers: &Headers) -> Option<Self> {
        let all = |name: &str| headers.get(name);
        let age_then = all("age").first().map_or(0, |age| number(age));
        let lifetime = Control::of(&all("cache-control")).lifetime();
        // The cookie is one client's. Of what answers vary with, clients' headers, none is sent.
        let is_for_all = all("set-cookie").is_empty() && !all("vary").iter().any(|of| of == b"*");
        (is_for_all && age_then < lifetime).then(|| Self {
            url: url.to_owned(),
            came: now(),
            age_then,
            lifetime,
            headers: crate::passed(headers),
            body: Vec::new(),
        })
    }

    /// In seconds.
    pub fn age(&self) -> u64 {
        self.age_then
            .saturating_add(now().saturating_sub(self.came))
    }

    /// A line for the URL, one for the times, one for each header; an empty one; the body.
    fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = format!(
            "{}\n{} {} {}\n",
            self.url, self.came, self.age_then, self.lifetime
        )
        .into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b':');
            bytes.extend_from_slice(value);
            bytes.push(b'\n');
        }
        bytes.push(b'\n');
        if bytes.len() > LARGEST_HEAD {
            return None;
        }
        bytes.extend_from_slice(&self.body);
        Some(bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (url, rest) = line(bytes)?;
        let (times, mut rest) = line(rest)?;
        let mut times = times.split(|byte| *byte == b' ').map(number);
        let mut entry = Self {
            url: String::from_utf8(url.to_vec()).ok()?,
            came: times.next()?,
            age_then: times.next()?,
            lifetime: times.next()?,
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let (header, next) = line(rest)?;
            rest = next;
            if header.is_empty() {
                break;
            }
            let colon = header.iter().position(|byte| *byte == b':')?;
            let name = String::from_utf8(header[..colon].to_vec()).ok()?;
            entry.headers.push((name, header[colon + 1..].to_vec()));
        }
        entry.body = rest.to_vec();
        Some(entry)
    }
}

/// What is kept of this URL and may still be used.
pub fn fresh(url: &str) -> Option<Entry> {
    let stored = Store::open_default().and_then(|store| store.get(&slot(url)));
    let stored = stored.unwrap_or_else(|error| {
        // Without its store the proxy still passes on.
        eprintln!("{url}: nothing is read from the store: {error}");
        None
    });
    let entry = Entry::from_bytes(&stored?)?;
    (entry.url == url && entry.age() < entry.lifetime).then_some(entry)
}

/// Keeps it in place of what was in its slot.
pub fn keep(entry: &Entry) {
    let Some(bytes) = entry.to_bytes() else {
        return;
    };
    let stored = Store::open_default().and_then(|store| store.set(&slot(&entry.url), &bytes));
    if let Err(error) = stored {
        eprintln!("{}: not stored: {error}", entry.url);
    }
}

/// Where a URL is kept. A build with another hash finds others' URLs there, and asks the origin.
fn slot(url: &str) -> String {
    let mut hasher = DefaultHasher::new();
    url.hash(&mut hasher);
    format!("slot-{:03}", hasher.finish() % SLOTS)
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// 0 where it is none.
pub fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
