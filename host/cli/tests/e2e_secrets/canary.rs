//! A secret that was used is looked for, where it is not to be.

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

/// The value that is looked for. It stands nowhere as a whole but where it was put.
pub fn canary() -> String {
    ["canary", "of", "this", "test", "7f3a9c"].join("-")
}

/// What is found in the same way, and is no secret.
fn marker() -> String {
    ["marker", "of", "this", "test", "51be02"].join("-")
}

/// Where a text is in a process's memory: the line and the flags of each mapping that has it, and
/// the files in memory that it has open.
pub fn found_in_memory(pid: u32, text: &str) -> Vec<String> {
    let there = |result: io::Result<File>| match result {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // It has ended.
        Err(error) if error.raw_os_error() == Some(3) => None,
        Err(error) => panic!("process {pid}: {error}"),
    };
    let Some(memory) = there(File::open(format!("/proc/{pid}/mem"))) else {
        return Vec::new();
    };
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"));
    // It may end now.
    let smaps = smaps.unwrap_or_default();
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| {
            let (from, to) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some((hex(from)?, hex(to)?))
        });
        if let Some((from, to)) = range {
            // Reserved addresses have nothing behind them.
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

/// Whether a file has a text in what there is of it.
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
            // A page that cannot be read, such as a device's.
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

/// Every file below a folder that has a text.
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

/// A secret that was used is in no file, in no seed and in nobody's memory, but where the node
/// keeps it.
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
    // The process that it was told to is gone. This one reads it from disk.
    let mut node = Running::serving(data_dir, &["--min-parked", "2"]);
    let address = node.address();
    let pid = node.child.id();
    for _ in 0..10 {
        let told = get(address, "/bird/variable/key").body;
        assert_eq!(told, format!("some {}", canary()));
        // What asks at its start has all of them while it is initialised.
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
    // A configuration's value is in seeds and in whatever is made of them: so much is looked at.
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
    // Answers had it, too: what they lay in is used by others in time.
    e2e::until("no jail has it", || {
        assert_eq!(get(address, "/bird/get/nothing").body, "none");
        seen(&canary()).is_empty()
    });
    e2e::until("the node has it in one place", || {
        assert_eq!(get(address, "/bird/get/nothing").body, "none");
        let found = found_in_memory(pid, &canary());
        // Locked, and in no core file.
        let kept = |place: &String| place.contains(" lo ") && place.contains(" dd ");
        found.len() == 1 && found.iter().all(kept)
    });
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
    // Not only once somebody asks again.
    told(&["secret", "rm", "bird", "key"], data_dir);
    assert_eq!(found_in_memory(pid, &canary()), [""; 0]);
    told(&["rm", "bird"], data_dir);
    assert_eq!(node.stop("TERM"), Some(0));
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
}
