//! Contents that functions and clients choose, as a terminal and as a pipe receives them.

use std::{
    ffi::{CStr, OsStr},
    fs::File,
    io::Read as _,
    os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    process::{Command, Stdio},
};

use super::{code, common, faasw, stderr};

/// Sets a title, clears the screen, reverses the direction of text, and is not valid UTF-8.
const HOSTILE: &[u8] = b"\x1b]0;pwn\x07\x1b[2J\xe2\x80\xae\x9b31m\xff";
/// `HOSTILE` as a terminal receives it.
const ESCAPED: &str = "\\u{1b}]0;pwn\\u{7}\\u{1b}[2J\\u{202e}\\x9b31m\\xff";

/// Opens a pseudoterminal: its own side, and the side of the program that runs on it. Both are
/// closed when another test starts a program.
fn terminal() -> (File, File) {
    let own = File::options().read(true).write(true).open("/dev/ptmx");
    let own = own.unwrap();
    let mut name = [0; 64];
    // SAFETY: the descriptor is open, and the buffer is as long as its stated length.
    let outcomes = unsafe {
        [
            libc::grantpt(own.as_raw_fd()),
            libc::unlockpt(own.as_raw_fd()),
            libc::ptsname_r(own.as_raw_fd(), name.as_mut_ptr(), name.len()),
        ]
    };
    assert_eq!(outcomes, [0; 3]);
    // SAFETY: ptsname_r has ended the name with a zero byte.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let programs = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(OsStr::from_bytes(name.to_bytes()));
    (own, programs.unwrap())
}

/// Returns all that a command writes to a terminal.
fn on_terminal(words: &[&OsStr], data_dir: &Path) -> Vec<u8> {
    let (mut own, programs) = terminal();
    let stream = || Stdio::from(programs.try_clone().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_faasw"))
        .args(words)
        .env("FAASW_DATA_DIR", data_dir)
        .stdin(stream())
        .stdout(stream())
        .stderr(stream())
        .spawn()
        .unwrap();
    drop(programs);
    let mut written = Vec::new();
    // The read fails with EIO when the program has closed its side.
    let ended = own.read_to_end(&mut written);
    assert_eq!(ended.unwrap_err().raw_os_error(), Some(libc::EIO));
    child.wait().unwrap();
    written
}

fn text_on_terminal(words: &[&str], data_dir: &Path) -> String {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    String::from_utf8(on_terminal(&words, data_dir)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_receives_contents_escaped_and_a_pipe_receives_them_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let file = folder.path().join("hostile");
    std::fs::write(&file, HOSTILE).unwrap();
    let hostile = format!("@{}", file.display());
    let run = |words: &[&str]| faasw(words, folder.path());
    let shown = |words: &[&str]| text_on_terminal(words, folder.path());

    assert_eq!(code(&run(&["kv", "set", "f", "key", &hostile])), 0);
    assert_eq!(run(&["kv", "get", "f", "key"]).stdout, HOSTILE);
    let value = shown(&["kv", "get", "f", "key"]);
    assert!(value.starts_with(&format!("{ESCAPED}\r\n")), "{value:?}");
    assert!(value.contains("--raw"), "{value:?}");
    let raw = ["kv", "get", "f", "key", "--raw"].map(OsStr::new);
    assert_eq!(on_terminal(&raw, folder.path()), HOSTILE);
    // A harmless value is shown without a note.
    assert_eq!(code(&run(&["kv", "set", "f", "plain", "a\tü"])), 0);
    assert_eq!(shown(&["kv", "get", "f", "plain"]), "a\tü");

    // The function sends back the request body as text.
    let invoke = ["invoke", "f", "-d", &hostile];
    let sent = String::from_utf8_lossy(HOSTILE);
    let piped = run(&invoke).stdout;
    assert!(piped.ends_with(sent.as_bytes()), "{piped:?}");
    let body = shown(&invoke);
    assert!(body.contains("\\u{1b}]0;pwn\\u{7}"), "{body:?}");
    assert!(!body.contains('\x1b') && !body.contains('\x07'), "{body:?}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_receives_names_and_refused_arguments_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let key = "k\x1b[2J\u{202e}";
    let set = faasw(&["kv", "set", "f", key, "v"], folder.path());
    assert_eq!(code(&set), 0, "{set:?}");
    for (words, part) in [
        (&["kv", "ls", "f"][..], "k\\u{1b}[2J\\u{202e}"),
        (&["kv", "ls", "f", "--json"], "k\\u001b[2J\\u202e"),
        (&["kv", "get", "f", "no\x1b[2J"], "no\\u{1b}[2J"),
        // A shell expands file names to arguments. clap drops the terminal's escape sequence.
        (&["ls", "a\u{202e}\x1b[2J.wasm"], "'a\\u{202e}.wasm'"),
    ] {
        let shown = text_on_terminal(words, folder.path());
        assert!(shown.contains(part), "{words:?}: {shown:?}");
        assert!(
            !shown.contains(['\x1b', '\u{202e}']),
            "{words:?}: {shown:?}"
        );
    }
    let refused = faasw(&["ls", "a\x1b[2J.wasm"], folder.path());
    assert_eq!(code(&refused), 2, "{refused:?}");
    assert!(stderr(&refused).contains("Usage: "), "{refused:?}");
    node.shutdown().await;
}
