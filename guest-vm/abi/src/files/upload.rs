//! Files in an upload, in front of the module that they belong to.
//!
//! ```text
//! upload:  MAGIC, length (u64), files, module
//! files:   count (u32), { kind (u8), path, content }
//! path, content: length (u32), that many bytes
//! ```
//!
//! The content of a link is its target; a folder has none. The parent folders of a path may be
//! omitted.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{CONTENTS_MAX, DEPTH_MAX, ENTRIES_MAX, FilesError, Kind, PATH_MAX, is_name};
use super::{bundle, leads_within};
use crate::wire::{Reader, WireError, Writer};

/// First bytes of an upload with files; neither Wasm nor text nor a script begins so.
pub const MAGIC: [u8; 8] = *b"\0files\x01\0";

/// Maximum bytes of the files in an upload: their contents, and space for their paths and lengths.
pub const FILES_MAX: u64 = CONTENTS_MAX + (16 << 20);

/// Bytes before the files.
const FRONT: usize = MAGIC.len() + size_of::<u64>();

/// Files that are being collected for an upload, in the order in which they are added.
#[derive(Debug, Default)]
pub struct Files {
    count: u32,
    writer: Writer,
}

impl Files {
    /// Adds an entry: for a link `content` is its target, for a folder it is empty. Nothing is
    /// checked here.
    pub fn add(&mut self, kind: Kind, path: &str, content: &[u8]) {
        self.count = self.count.saturating_add(1);
        self.writer.bytes(&[kind.number()]);
        self.writer.string(path.as_bytes());
        self.writer.string(content);
    }

    /// Returns an upload of these files and the module that they belong to.
    #[must_use]
    pub fn before(self, module: &[u8]) -> Vec<u8> {
        let files = self.into_bytes();
        let length = (files.len() as u64).to_le_bytes();
        [&MAGIC[..], &length, &files, module].concat()
    }

    /// Returns the encoded files alone, as [`pack`] takes them.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        [&self.count.to_le_bytes()[..], &self.writer.into_bytes()].concat()
    }
}

/// The positions of the files, and of the module behind them.
pub type Parts = (Range<usize>, Range<usize>);

/// Returns the positions of the files and of the module in an upload; `None` if it has no files.
///
/// # Errors
/// Returns [`FilesError::Malformed`] if the upload ends too early, and [`FilesError::TooLarge`] if
/// the files have more than [`FILES_MAX`] bytes.
pub fn split(upload: &[u8]) -> Result<Option<Parts>, FilesError> {
    if !upload.starts_with(&MAGIC) {
        return Ok(None);
    }
    let front = upload.get(MAGIC.len()..FRONT);
    let length = front.and_then(|length| length.try_into().ok());
    let length = u64::from_le_bytes(length.ok_or(WireError::Truncated)?);
    if length > FILES_MAX {
        return Err(FilesError::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| FilesError::TooLarge)?;
    let end = FRONT.saturating_add(length);
    if end > upload.len() {
        return Err(WireError::Truncated.into());
    }
    Ok(Some((FRONT..end, end..upload.len())))
}

/// An entry of the bundle in construction.
struct Node<'a> {
    content: Content<'a>,
    parent: usize,
    name: &'a str,
}

/// The content of an entry.
enum Content<'a> {
    Bytes(&'a [u8]),
    /// Names, with the indices of their nodes.
    Names(BTreeMap<&'a str, usize>),
    Path(&'a str),
}

/// Packs uploaded files into a bundle. Equal files, in any order, result in equal bundles.
///
/// # Errors
/// Returns the [`FilesError`] of the violated rule if a path, a link or a size is invalid, or the
/// files are truncated.
pub fn pack(files: &[u8]) -> Result<Vec<u8>, FilesError> {
    let nodes = read(files)?;
    // Folder by folder, so that the names of each are consecutive, and behind the folder itself.
    let mut order = vec![0];
    let mut at = 0;
    while let Some(folder) = order.get(at).and_then(|index| nodes.get(*index)) {
        if let Content::Names(names) = &folder.content {
            order.extend(names.values());
        }
        at += 1;
    }
    let mut places = vec![0; nodes.len()];
    for (place, index) in order.iter().enumerate() {
        if let Some(of) = places.get_mut(*index) {
            *of = place;
        }
    }
    let mut packing = bundle::Packing::default();
    let place_of = |index: usize| places.get(index).copied().unwrap_or_default();
    for node in order.iter().filter_map(|index| nodes.get(*index)) {
        let parent = place_of(node.parent);
        match &node.content {
            Content::Bytes(bytes) => packing.file(parent, node.name, bytes),
            Content::Path(path) => packing.link(parent, node.name, path),
            Content::Names(names) => {
                let first = names.values().next().map_or(0, |first| place_of(*first));
                packing.folder(parent, node.name, first, names.len());
            }
        }
    }
    Ok(packing.finish())
}

/// Returns all entries, including folders that were omitted in the upload. The first is the root.
fn read(files: &[u8]) -> Result<Vec<Node<'_>>, FilesError> {
    let mut reader = Reader::new(files);
    let count = u32::from_le_bytes(reader.array()?);
    if count as usize > ENTRIES_MAX {
        return Err(FilesError::TooMany);
    }
    let mut nodes = vec![Node {
        content: Content::Names(BTreeMap::new()),
        parent: 0,
        name: "",
    }];
    let mut contents = 0_u64;
    for _ in 0..count {
        let [kind] = reader.array()?;
        let kind = Kind::of(kind).ok_or(WireError::BadValue)?;
        let path = text(reader.slice()?, FilesError::BadPath)?;
        let content = reader.slice()?;
        let content = match kind {
            Kind::File => {
                contents = contents.saturating_add(content.len() as u64);
                Content::Bytes(content)
            }
            Kind::Folder => Content::Names(BTreeMap::new()),
            Kind::Link => Content::Path(text(content, |_| FilesError::BadLink(path.into()))?),
        };
        if contents > CONTENTS_MAX {
            return Err(FilesError::TooLarge);
        }
        put(&mut nodes, path, content)?;
        if nodes.len() > ENTRIES_MAX + 1 {
            return Err(FilesError::TooMany);
        }
    }
    if reader.left() > 0 {
        return Err(WireError::TrailingBytes.into());
    }
    Ok(nodes)
}

fn text(bytes: &[u8], error: impl FnOnce(String) -> FilesError) -> Result<&str, FilesError> {
    let read = core::str::from_utf8(bytes);
    read.map_err(|_| error(shown(&String::from_utf8_lossy(bytes))))
}

/// Returns a path for an error message, cut to the maximum length.
fn shown(path: &str) -> String {
    let cut = path.get(..path.floor_char_boundary(PATH_MAX));
    cut.unwrap_or_default().to_string()
}

/// Adds an entry at its path.
fn put<'a>(
    nodes: &mut Vec<Node<'a>>,
    path: &'a str,
    content: Content<'a>,
) -> Result<(), FilesError> {
    let bad = || FilesError::BadPath(shown(path));
    let depth = path.split('/').count();
    if path.len() > PATH_MAX || depth > DEPTH_MAX || !path.split('/').all(is_name) {
        return Err(bad());
    }
    if let Content::Path(target) = &content
        && !leads_within(target, depth - 1)
    {
        return Err(FilesError::BadLink(path.into()));
    }
    let twice = || FilesError::Twice(path.into());
    let mut folder = 0;
    let mut content = Some(content);
    for (number, name) in (1..).zip(path.split('/')) {
        let next = nodes.len();
        let names = match nodes.get_mut(folder).map(|node| &mut node.content) {
            Some(Content::Names(names)) => names,
            _ => return Err(twice()),
        };
        let is_last = number == depth;
        let there = names.get(name).copied();
        if there.is_none() {
            names.insert(name, next);
            let content = content.take_if(|_| is_last);
            nodes.push(Node {
                content: content.unwrap_or_else(|| Content::Names(BTreeMap::new())),
                parent: folder,
                name,
            });
        } else if is_last {
            // The folder may exist already, because an entry in it came first.
            let both = (&content, there.and_then(|there| nodes.get(there)));
            let (Some(Content::Names(_)), Some(Node { content, .. })) = both else {
                return Err(twice());
            };
            if !matches!(content, Content::Names(_)) {
                return Err(twice());
            }
        }
        folder = there.unwrap_or(next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::bundle::{Bundle, EntryObject};
    use super::*;
    use alloc::format;

    fn files(all: &[(Kind, &str, &[u8])]) -> Vec<u8> {
        let mut files = Files::default();
        for (kind, path, content) in all {
            files.add(*kind, path, content);
        }
        files.into_bytes()
    }

    #[test]
    fn an_upload_is_split_where_its_files_end() {
        let mut files = Files::default();
        files.add(Kind::File, "a", b"1");
        let upload = files.before(b"\0asm");
        let (files, module) = split(&upload).unwrap().unwrap();
        assert_eq!(&upload[module.clone()], b"\0asm");
        assert!(pack(&upload[files]).is_ok());
        assert_eq!(split(b"\0asm"), Ok(None));
        for end in MAGIC.len()..module.start {
            assert!(split(&upload[..end]).is_err(), "{end}");
        }
        let lie = [&MAGIC[..], &u64::MAX.to_le_bytes()].concat();
        assert_eq!(split(&lie), Err(FilesError::TooLarge));
    }

    #[test]
    fn the_same_files_in_any_order_are_the_same_bundle() {
        let one = (Kind::File, "lib/a.py", &b"import b"[..]);
        let two = (Kind::Folder, "lib", &b""[..]);
        let three = (Kind::Link, "lib/c", &b"../lib/a.py"[..]);
        let packed = pack(&files(&[one, two, three])).unwrap();
        assert_eq!(pack(&files(&[three, one, two])), Ok(packed.clone()));
        assert_eq!(pack(&files(&[three, one])), Ok(packed.clone()));
        let bundle = Bundle::read(&packed).unwrap();
        let lib = bundle.named(0, "lib").unwrap();
        let a = bundle.entry(bundle.named(lib, "a.py").unwrap()).unwrap();
        assert!(matches!(a.what, EntryObject::File(content) if content == b"import b"));
        let c = bundle.entry(bundle.named(lib, "c").unwrap()).unwrap();
        assert!(matches!(c.what, EntryObject::Link("../lib/a.py")));
        assert_eq!(bundle.named(lib, "d"), None);
    }

    #[test]
    fn no_path_and_no_link_leads_out() {
        for path in ["", "/a", "a/", "a//b", "..", "a/../b", "a\0b", "a/."] {
            let bad = Err(FilesError::BadPath(path.into()));
            assert_eq!(pack(&files(&[(Kind::File, path, b"")])), bad, "{path:?}");
        }
        let deep = ["a"; DEPTH_MAX + 1].join("/");
        let long = "a".repeat(256);
        for path in [deep, long] {
            let packed = pack(&files(&[(Kind::File, &path, b"")]));
            assert!(matches!(packed, Err(FilesError::BadPath(_))));
        }
        for target in [&b".."[..], b"/etc/passwd", b"b/../../..", b"", b"\xff"] {
            let bad = Err(FilesError::BadLink("a".into()));
            assert_eq!(pack(&files(&[(Kind::Link, "a", target)])), bad);
        }
    }

    #[test]
    fn one_path_has_one_thing() {
        for two in [
            [(Kind::File, "a", &b""[..]), (Kind::File, "a", &b""[..])],
            [(Kind::File, "a", b""), (Kind::File, "a/b", b"")],
            [(Kind::File, "a/b", b""), (Kind::File, "a", b"")],
            [(Kind::Link, "a", b"b"), (Kind::Folder, "a", b"")],
        ] {
            let packed = pack(&files(&two));
            assert!(matches!(packed, Err(FilesError::Twice(_))), "{packed:?}");
        }
    }

    #[test]
    fn truncated_or_oversized_uploads_are_refused() {
        let whole = files(&[(Kind::File, "a", b"xyz"), (Kind::Folder, "b", b"")]);
        for end in 0..whole.len() {
            assert!(pack(&whole[..end]).is_err(), "{end}");
        }
        let longer = [&whole[..], b"!"].concat();
        assert_eq!(pack(&longer), Err(WireError::TrailingBytes.into()));
        let pipe = [&1_u32.to_le_bytes()[..], &[4], &[1, 0, 0, 0], b"p", &[0; 4]].concat();
        assert_eq!(pack(&pipe), Err(WireError::BadValue.into()));
        let mut many = Files::default();
        for number in 0..=ENTRIES_MAX {
            many.add(Kind::File, &format!("{number}"), b"");
        }
        assert_eq!(pack(&many.into_bytes()), Err(FilesError::TooMany));
        // Omitted folders count as entries.
        let mut many = Files::default();
        for number in 0..=ENTRIES_MAX / 2 {
            many.add(Kind::File, &format!("{number}/a"), b"");
        }
        assert_eq!(pack(&many.into_bytes()), Err(FilesError::TooMany));
        let large = vec![0; CONTENTS_MAX as usize];
        let too_large = pack(&files(&[
            (Kind::File, "a", &large),
            (Kind::File, "b", b"1"),
        ]));
        assert_eq!(too_large, Err(FilesError::TooLarge));
    }
}
