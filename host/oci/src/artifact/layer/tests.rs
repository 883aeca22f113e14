use std::{fs::File, io::Write as _};

use super::*;

const WASM: &[u8] = b"\0asm\x01\0\0\0";

/// Creates an unnamed file with this content.
fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    file
}

/// Creates an archive from the kind, path and content of each entry.
fn tar(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (kind, path, content) in entries {
        let mut header = Header::new_ustar();
        header.set_entry_type(*kind);
        // The name is written directly, as an attacker would: the library would reject `..`.
        let name = &mut header.as_ustar_mut().unwrap().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        let is_link = [EntryType::Symlink, EntryType::Link].contains(kind);
        let content = if is_link { &b""[..] } else { content };
        if is_link {
            header.set_link_name_literal("target").unwrap();
        }
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }
    archive.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

const FILE: EntryType = EntryType::Regular;

#[test]
fn the_only_module_of_an_image_is_found_in_any_packing() {
    let archive = tar(&[
        (EntryType::Directory, "app/", b""),
        (EntryType::Directory, "app.wasm/", b""),
        (FILE, "app/.wh.old.wasm", b""),
        (FILE, "app/.wh..wh..opq", b""),
        (FILE, "app/readme", b"text"),
        (EntryType::Symlink, "app/link", b""),
        (FILE, "app/hello.wasm", WASM),
    ]);
    for packed in [archive.clone(), gzip(&archive), zstd(&archive)] {
        assert_eq!(module_of(file(&packed), 64).unwrap(), WASM);
    }
    let outside = tar(&[(FILE, "../../etc/hello.wasm", WASM)]);
    assert_eq!(module_of(file(&outside), 64).unwrap(), WASM);
}

#[test]
fn images_without_exactly_one_module_are_rejected() {
    for (entries, why) in [
        (&[][..], "no file that is called"),
        (&[(FILE, "a", WASM)], "no file that is called"),
        (
            &[(FILE, "a.wasm", WASM), (FILE, "b/b.wasm", WASM)],
            "several",
        ),
        (&[(EntryType::Symlink, "a.wasm", b"")], "no file"),
        (&[(EntryType::Link, "a.wasm", b"")], "no file"),
        (&[(EntryType::Fifo, "a.wasm", b"")], "no file"),
        (&[(FILE, "a.wasm", &[0; 65])], "more than 64 bytes"),
    ] {
        let told = module_of(file(&tar(entries)), 64).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
    for bytes in [
        &b"nothing of the kind"[..],
        &[0; 512],
        &GZIP,
        &ZSTD,
        &[0x1f, 0x8b, 8, 0, 1],
        &[0xff; 2048],
    ] {
        assert!(module_of(file(bytes), 64).is_err(), "{bytes:?}");
    }
    let whole = tar(&[(FILE, "a.wasm", &[7; 60_000])]);
    let cut = module_of(file(&whole[..20_000]), 1 << 20).unwrap_err();
    assert!(matches!(cut, OciError::Artifact(_)), "{cut}");
    let packed = gzip(&whole);
    assert!(module_of(file(&packed[..packed.len() / 2]), 1 << 20).is_err());
}

#[test]
fn unpacking_is_bounded() {
    // Compressed it has 5 MiB.
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(usize::try_from(self.0).unwrap());
            buffer[..count].fill(0);
            self.0 -= count as u64;
            Ok(count)
        }
    }
    const HUGE: u64 = 1 << 30;
    let mut header = Header::new_ustar();
    header.set_path("other").unwrap();
    header.set_size(HUGE);
    header.set_cksum();
    let mut packed = GzBuilder::new().write(tempfile::tempfile().unwrap(), Compression::fast());
    packed.write_all(header.as_bytes()).unwrap();
    io::copy(&mut Endless(HUGE), &mut packed).unwrap();
    packed.write_all(&tar(&[(FILE, "a.wasm", WASM)])).unwrap();
    let mut bomb = packed.finish().unwrap();
    bomb.rewind().unwrap();
    let begun = std::time::Instant::now();
    assert!(module_of(bomb, 64).is_err());
    assert!(begun.elapsed() < std::time::Duration::from_secs(30));
}

#[test]
fn an_entry_with_a_huge_announced_size_allocates_nothing() {
    for kind in [
        FILE,
        EntryType::GNULongName,
        EntryType::XHeader,
        EntryType::GNUSparse,
    ] {
        let mut header = Header::new_gnu();
        header.set_path("a.wasm").unwrap();
        header.set_entry_type(kind);
        header.set_size(1 << 40);
        header.set_cksum();
        let bytes = [&header.as_bytes()[..], &[b'x'; 4096]].concat();
        assert!(module_of(file(&bytes), 1 << 20).is_err(), "{kind:?}");
    }
}

#[test]
fn too_many_entries_are_rejected() {
    let many: Vec<_> = (0..=ENTRIES_MAX).map(|_| (FILE, "a", &b""[..])).collect();
    let told = module_of(file(&gzip(&tar(&many))), 64)
        .unwrap_err()
        .to_string();
    assert!(told.contains("more than 10000 entries"), "{told}");
}

fn entry<'a>(kind: FileKind, path: &'a str, content: &'a [u8]) -> FilesEntry<'a> {
    FilesEntry {
        kind,
        path,
        content,
    }
}

type Owned = (FileKind, String, Vec<u8>);

fn read(packed: &[u8], bytes: u64, entries: usize) -> Result<Vec<Owned>, OciError> {
    let mut all = Vec::new();
    let limits = FilesLimits { bytes, entries };
    read_files(file(packed), limits, |one| {
        all.push((one.kind, one.path.to_owned(), one.content.to_owned()));
    })?;
    Ok(all)
}

#[test]
fn files_round_trip_and_packing_is_deterministic() {
    let long = "d/".repeat(120) + "file";
    let files = || {
        [
            entry(FileKind::Folder, "a", b""),
            entry(FileKind::File, "a/b \u{e9}", b"content"),
            entry(FileKind::Link, "a/c", b"../a/b"),
            entry(FileKind::File, &long, b""),
        ]
    };
    let packed = write_files(files()).unwrap();
    assert_eq!(packed, write_files(files()).unwrap());
    let expected: Vec<Owned> = files()
        .iter()
        .map(|one| (one.kind, one.path.to_owned(), one.content.to_owned()))
        .collect();
    assert_eq!(read(&packed, 7, 4).unwrap(), expected);
    let few = read(&packed, 7, 3).unwrap_err().to_string();
    assert!(few.contains("more than 3"), "{few}");
    let small = read(&packed, 6, 4).unwrap_err().to_string();
    assert!(small.contains("more than 6 bytes"), "{small}");
}

#[test]
fn archives_of_other_tools_are_read_without_devices() {
    let archive = tar(&[
        (EntryType::Directory, "./", b""),
        (EntryType::Directory, "./a/", b""),
        (FILE, "./a/b", b"x"),
    ]);
    let found = read(&gzip(&archive), 10, 10).unwrap();
    assert_eq!(found[0], (FileKind::Folder, "a".to_owned(), Vec::new()));
    assert_eq!(found[1], (FileKind::File, "a/b".to_owned(), b"x".to_vec()));
    for kind in [EntryType::Link, EntryType::Block, EntryType::Fifo] {
        assert!(
            read(&gzip(&tar(&[(kind, "a", b"")])), 10, 10).is_err(),
            "{kind:?}"
        );
    }
}

#[test]
fn an_archive_beyond_the_limit_is_an_error() {
    // The headers of two files, the content of the first, and so much of the second that the next
    // entry would start beyond the limit.
    const LIMIT: u64 = 1024;
    let fill = vec![0; (LIMIT + AROUND_MAX) as usize - 3 * 512];
    let whole = [(FILE, "a.wasm", WASM), (FILE, "fill", &fill[..])];
    let beyond = [whole[0], whole[1], (FILE, "b.wasm", WASM)];
    for (entries, is_cut) in [
        (&whole[..1], false),
        (&whole[..], true),
        (&beyond[..], true),
    ] {
        let packed = gzip(&tar(entries));
        let found = module_of(file(&packed), LIMIT);
        if is_cut {
            let error = found.unwrap_err().to_string();
            assert!(error.contains("its archive"), "{error}");
        } else {
            assert_eq!(found.unwrap(), WASM)
        }
    }
}
