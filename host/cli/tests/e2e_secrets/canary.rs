//! Searches for a secret that was used, in places where it must not be.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

use crate::{
    PROBE,
    e2e::{
        self,
        process::{Running, descendants, get, told},
    },
    set_by_command,
};

/// Returns the secret to search for. The source does not contain it as a whole.
pub fn canary() -> String {
    ["canary", "of", "this", "test", "7f3a9c"].join("-")
}

/// Returns a value that the same search must find, and that is no secret.
fn marker() -> String {
    ["marker", "of", "this", "test", "51be02"].join("-")
}

/// Returns where a text is in a process's memory: the line and the flags of each mapping that
/// contains it, and the in-memory files that the process has open.
pub fn found_in_memory(pid: u32, text: &str) -> Vec<String> {
    let there = |result: io::Result<File>| match result {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // The process has ended.
        Err(error) if error.raw_os_error() == Some(3) => None,
        Err(error) => panic!("process {pid}: {error}"),
    };
    let Some(memory) = there(File::open(format!("/proc/{pid}/mem"))) else {
        return Vec::new();
    };
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"));
    // The process may end now.
    let smaps = smaps.unwrap_or_default();
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| {
            let (from, to) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some((hex(from)?, hex(to)?))
        });
        if let Some((from, to)) = range {
            // Reserved addresses have no memory.
            let is_readable = line
                .split(' ')
                .nth(1)
                .is_some_and(|may| may.starts_with('r'));
            mapping = is_readable.then(|| (from, to, line.to_owned()));
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && let Some((from, to, told)) = mapping.take()
            && has(&memory, from, to, text.as_bytes())
        {
            found.push(format!("{told} [{flags} ]"));
        }
    }
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
    {
        let Ok(path) = entry.map(|entry| entry.path()) else {
            continue;
        };
        let name = fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().starts_with("/memfd:")
            && let Some(file) = there(File::open(&path))
            && has_data(&file, text.as_bytes())
        {
            found.push(name.display().to_string());
        }
    }
    found
}

/// Whether the data of a file, without its holes, contains a text.
fn has_data(file: &File, text: &[u8]) -> bool {
    let length = file.metadata().unwrap().len();
    let mut at = 0;
    while at < length {
        let Ok(from) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) else {
            return false;
        };
        let to = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(from)).unwrap_or(length);
        if has(file, from, to, text) {
            return true;
        }
        at = to;
    }
    false
}

fn has(memory: &File, from: u64, to: u64, text: &[u8]) -> bool {
    const PART: usize = 1 << 20;
    let mut buffer = vec![0; PART + text.len()];
    let mut at = from;
    while at < to {
        let wanted = usize::try_from(to - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let Ok(read) = memory.read_at(&mut buffer[..wanted], at) else {
            // A page that cannot be read, such as one of a device.
            at += 4096;
            continue;
        };
        if memchr::memmem::find(&buffer[..read], text).is_some() {
            return true;
        }
        if read > text.len() {
            at += (read - text.len()) as u64
        } else {
            at += 4096
        }
    }
    false
}

/// Returns every file below a directory that contains a text.
pub fn found_in_files(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(found_in_files(&path, text));
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(&path)
            && memchr::memmem::find(&bytes, text.as_bytes()).is_some()
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A secret that was used is in no file, in no seed and in no process's memory, except where the
/// node keeps it.
pub fn a_canary_is_found_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path();
    let mut node = Running::serving(data_dir, &[]);
    node.address();
    set_by_command(data_dir, &["bird", "key"], &canary());
    set_by_command(data_dir, &["bird", "colour"], "red\n");
    let deploy = [
        "deploy", PROBE, "--name", "bird", "--secret", "key", "--secret", "colour",
    ];
    let configured = format!("marker={}", marker());
    told(
        &[&deploy[..], &["--config", &configured]].concat(),
        data_dir,
    );
    assert_eq!(node.stop("TERM"), Some(0));
    // The process that received the secret has ended; this one reads it from disk.
    let mut node = Running::serving(data_dir, &["--min-warm", "2"]);
    let address = node.address();
    let pid = node.child.id();
    for _ in 0..10 {
        let told = get(address, "/bird/variable/key").body;
        assert_eq!(told, format!("some {}", canary()));
        // A function that reads a secret at its start has its secrets while it is initialised.
        assert_eq!(get(address, "/bird/at-start").body, "some red");
    }
    for words in [
        &["secret", "ls", "--json"][..],
        &["inspect", "bird", "--json"],
        &["inspect", "bird"],
        &["ls", "--json"],
        &["logs", "bird"],
        &["tree"],
        &["stats"],
    ] {
        let told = told(words, data_dir);
        assert!(!told.contains(&canary()), "{words:?}: {told}");
    }
    let listed = told(&["secret", "ls", "bird"], data_dir);
    assert!(
        listed.contains("colour") && listed.contains("key"),
        "{listed}"
    );
    assert!(!node.stderr().contains(&canary()));
    // The marker is a configuration value, which is in seeds and their instances. Finding it shows
    // that the search covers them.
    let seen = |text: &str| {
        let jails = descendants(pid).into_iter();
        let found = jails.flat_map(|jail| found_in_memory(jail, text));
        found.collect::<Vec<String>>()
    };
    e2e::until("a jail has what is no secret", || {
        let told = get(address, "/bird/get/marker").body;
        assert_eq!(told, format!("some {}", marker()));
        !seen(&marker()).is_empty()
    });
    let in_node = found_in_memory(pid, &marker());
    let is_layer = |place: &String| place.contains("memfd:faasw-level-");
    assert!(
        in_node.iter().any(is_layer),
        "nothing is found in seeds: {in_node:?}"
    );
    // Responses contained the secret, too; their memory is reused in time.
    e2e::until("no jail has it", || {
        assert_eq!(get(address, "/bird/get/nothing").body, "none");
        seen(&canary()).is_empty()
    });
    e2e::until("the node has it in one place", || {
        assert_eq!(get(address, "/bird/get/nothing").body, "none");
        let found = found_in_memory(pid, &canary());
        // The mapping is locked, and excluded from core files.
        let kept = |place: &String| place.contains(" lo ") && place.contains(" dd ");
        found.len() == 1 && found.iter().all(kept)
    });
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
    // The value disappears at once, and not only at the next request.
    told(&["secret", "rm", "bird", "key"], data_dir);
    assert_eq!(found_in_memory(pid, &canary()), [""; 0]);
    told(&["rm", "bird"], data_dir);
    assert_eq!(node.stop("TERM"), Some(0));
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
}
