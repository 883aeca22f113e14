//! The packages of a `requirements.txt`, installed by the user's own pip.
//!
//! Packages are kept in the user's cache folder, by the content of the file and the engine's
//! version of Python. So a second deployment needs neither pip nor a network. The engine runs no
//! native code: packages in pure Python are preferred, and of others the native files are left out.

use std::{
    env, fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::process::CommandExt as _,
    path::{self, Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use faasw::{
    Digest,
    script::{FILES_MAX, SCRIPT_MAX},
};
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use super::requirement_lines;
use crate::{exit::Exit, output::say};

/// The name of the file.
pub const FILE: &str = "requirements.txt";

/// The engine's version of Python.
const PYTHON: &str = "3.14";

/// The systems whose wheels are taken if a package has none in pure Python, newest first.
const PLATFORMS: [&str; 4] = [
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
];

/// The file in a cached folder that has the names of native files that were left out.
const NOTES: &str = ".left-out";

/// How long pip may run: large packages take minutes over a slow network.
const PIP_TIMEOUT: Duration = Duration::from_secs(600);

/// The pause between checks whether pip has ended.
const PIP_PAUSE: Duration = Duration::from_millis(20);

/// Lines of pip's output that an error quotes.
const QUOTED_LINES: usize = 12;

/// Maximum bytes of pip's output that are read.
const ERRORS_MAX: u64 = 1 << 20;

/// The files of installed packages.
#[derive(Debug, Default)]
pub struct Packages {
    /// Paths and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// The native files that were left out, as one sentence.
    pub note: Option<String>,
}

/// Installs the packages of a file, unless they are cached, and reads them. Adds the files that it
/// includes to `included`.
///
/// # Errors
/// Returns an error if the file requires more than wheels, if pip is missing or fails, or if the
/// packages cannot be read.
pub fn packages(file: &Path, included: &mut Vec<PathBuf>) -> Result<Packages, Exit> {
    let text = requirement_lines::read_checked(file, included)?;
    let cache = cache_folder()?;
    let folder = cache.join(key(&text));
    if !folder.is_dir() {
        install(file, &cache, &folder)?;
    }
    read(&folder).map_err(|error| Exit::unreadable(&folder, error))
}

/// Returns the name of the folder of a file's packages: a digest of all lines that decide them.
fn key(text: &str) -> String {
    Digest::of(format!("{PYTHON}\n{text}").as_bytes()).to_string()
}

fn cache_folder() -> Result<PathBuf, Exit> {
    let absolute = |variable| {
        env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        Exit::failure("this user has no cache folder for the packages of requirements.txt")
            .hint("set XDG_CACHE_HOME")
    })?;
    let folder = cache.join("faasw/python");
    fs::create_dir_all(&folder).map_err(|error| Exit::unwritable(&folder, error))?;
    Ok(folder)
}

/// Installs the packages into a folder of the cache, which appears complete or not at all.
fn install(file: &Path, cache: &Path, folder: &Path) -> Result<(), Exit> {
    let unwritable = |error: io::Error| Exit::unwritable(cache, error);
    say(format_args!(
        "installing the packages of {}…",
        file.display()
    ));
    let file = &path::absolute(file).map_err(|error| Exit::unreadable(file, error))?;
    let temporary = tempfile::tempdir_in(cache).map_err(unwritable)?;
    let empty = temporary.path().join("empty");
    fs::create_dir(&empty).map_err(unwritable)?;
    let pure = temporary.path().join("pure");
    let pure_failure = match run_pip(file, &pure, &empty, false)? {
        None => return keep(&pure, folder).map_err(unwritable),
        Some(output) => output,
    };
    let mixed = temporary.path().join("mixed");
    match run_pip(file, &mixed, &empty, true)? {
        None => keep(&mixed, folder).map_err(unwritable),
        Some(output) => Err(failure(file, &pure_failure, &output)),
    }
}

/// Runs pip. Returns its output if it fails. With `allow_native`, packages for this machine are
/// taken if there are none in pure Python.
///
/// Python searches the current folder for modules, also for pip's own. So pip runs in an `empty`
/// folder, and `file` and `target` are absolute.
fn run_pip(
    file: &Path,
    target: &Path,
    empty: &Path,
    allow_native: bool,
) -> Result<Option<String>, Exit> {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "install", "--disable-pip-version-check"])
        .args(["--no-input", "--no-compile", "--quiet"])
        .args(["--only-binary=:all:", "--python-version", PYTHON])
        .args(["--abi", "none", "--platform", "any"]);
    if allow_native {
        command.args(["--implementation", "cp", "--abi", "cp314", "--abi", "abi3"]);
        for platform in PLATFORMS {
            command.args(["--platform", platform]);
        }
    } else {
        command.args(["--implementation", "py"]);
    }
    command.arg("--target").arg(target).arg("-r").arg(file);
    command.current_dir(empty);
    let (status, output) = run(&mut command).map_err(|error| {
        Exit::failure(format_args!(
            "{} needs pip, which cannot be run by python3: {error}",
            file.display()
        ))
        .hint("install Python with pip, or put the packages into the script's folder")
    })?;
    if status.success() {
        return Ok(None);
    }
    if output.contains("No module named pip") {
        let what = format!("{} needs pip, which python3 does not have", file.display());
        return Err(Exit::failure(what).hint("install it: python3 -m ensurepip --user"));
    }
    Ok(Some(output))
}

/// Runs a program with a deadline. Returns its status and its error output. The program ends with
/// the thread that runs it, because a signal of the terminal reaches this process only.
fn run(command: &mut Command) -> io::Result<(ExitStatus, String)> {
    let mut errors = tempfile::tempfile()?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?)
        .process_group(0);
    let ends_with_parent = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    // SAFETY: Between `fork` and `exec`, the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(ends_with_parent) };
    let deadline = Instant::now() + PIP_TIMEOUT;
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
            let minutes = PIP_TIMEOUT.as_secs() / 60;
            return Err(io::Error::other(format!(
                "it took longer than {minutes} min"
            )));
        }
        thread::sleep(PIP_PAUSE);
    };
    let mut output = Vec::new();
    errors.seek(SeekFrom::Start(0))?;
    errors.take(ERRORS_MAX).read_to_end(&mut output)?;
    Ok((status, String::from_utf8_lossy(&output).into_owned()))
}

/// Returns the failure of pip, with the lines that name the package.
fn failure(file: &Path, pure: &str, mixed: &str) -> Exit {
    let is_error = |line: &&str| line.contains("ERROR") || line.contains("error:");
    let mut lines: Vec<&str> = mixed.lines().filter(is_error).collect();
    if lines.is_empty() {
        lines = pure.lines().collect();
    }
    let quoted = lines.into_iter().rev().take(QUOTED_LINES);
    let mut quoted: Vec<&str> = quoted.collect();
    quoted.reverse();
    Exit::failure(format_args!(
        "the packages of {} cannot be installed for Python {PYTHON}:\n{}",
        file.display(),
        faasw_common::text::Indented(quoted.join("\n"))
    ))
}

/// Removes what the engine cannot use, notes native files, and moves the folder to its place.
fn keep(installed: &Path, folder: &Path) -> io::Result<()> {
    // pip makes no folder if there are no packages.
    fs::create_dir_all(installed)?;
    let mut left_out = Vec::new();
    let mut folders = vec![installed.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if next == installed && name == "bin" || name == "__pycache__" {
                    fs::remove_dir_all(&path)?;
                } else {
                    folders.push(path);
                }
            } else if is_native(&name) {
                let within = path.strip_prefix(installed).unwrap_or(&path);
                left_out.push(within.display().to_string());
                fs::remove_file(&path)?;
            } else if !is_useful(&next, &name) {
                fs::remove_file(&path)?;
            }
        }
    }
    left_out.sort();
    fs::write(installed.join(NOTES), left_out.join("\n"))?;
    match fs::rename(installed, folder) {
        // A concurrent process has installed the same packages.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => renamed,
    }
}

fn is_native(name: &str) -> bool {
    name.ends_with(".so") || name.contains(".so.") || name.ends_with(".pyd")
}

/// Returns whether programs read a file. Of a package's description, they read a few.
fn is_useful(folder: &Path, name: &str) -> bool {
    let is_description = folder
        .components()
        .any(|part| part.as_os_str().to_string_lossy().ends_with(".dist-info"));
    !is_description || ["METADATA", "entry_points.txt", "top_level.txt"].contains(&name)
}

fn read(folder: &Path) -> io::Result<Packages> {
    let mut packages = Packages::default();
    let mut left = SCRIPT_MAX as u64;
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let within = path.strip_prefix(folder).ok().and_then(Path::to_str);
            let Some(within) = within.filter(|within| kind.is_file() && *within != NOTES) else {
                continue;
            };
            let size = entry.metadata()?.len();
            let many = packages.files.len() >= FILES_MAX;
            left = left
                .checked_sub(size)
                .filter(|_| !many)
                .ok_or_else(|| io::Error::other("its packages are larger than a script may be"))?;
            packages.files.push((within.to_owned(), fs::read(&path)?));
        }
    }
    packages.files.sort_unstable();
    let left_out = fs::read_to_string(folder.join(NOTES)).unwrap_or_default();
    packages.note = note(&left_out);
    Ok(packages)
}

/// Returns a sentence about native files, or `None` if there are none.
fn note(left_out: &str) -> Option<String> {
    let mut names: Vec<&str> = left_out
        .lines()
        .map(|path| path.split('/').next().unwrap_or(path))
        .collect();
    names.dedup();
    (!names.is_empty()).then(|| {
        format!(
            "native code was left out of {}: what needs it fails when it is imported",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_packages_have_neither_native_code_nor_programs() {
        let temp = tempfile::tempdir().unwrap();
        let installed = temp.path().join("installed");
        for file in [
            "bin/flask",
            "a/__init__.py",
            "a/__pycache__/a.pyc",
            "a/_speed.cpython-314-x86_64-linux-gnu.so",
            "a/data.txt",
            "a-1.dist-info/METADATA",
            "a-1.dist-info/RECORD",
            "a-1.dist-info/licenses/LICENSE",
        ] {
            let path = installed.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let folder = temp.path().join("kept");
        keep(&installed, &folder).unwrap();
        let packages = read(&folder).unwrap();
        let paths: Vec<&str> = packages.files.iter().map(|(path, _)| &**path).collect();
        let expected = ["a-1.dist-info/METADATA", "a/__init__.py", "a/data.txt"];
        assert_eq!(paths, expected);
        assert!(packages.note.unwrap().contains("left out of a:"));
    }

    #[test]
    fn included_files_are_part_of_the_key() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join(FILE);
        fs::write(&file, "-r more.txt\nflask==3\n").unwrap();
        let key_now = || {
            let text = requirement_lines::read_checked(&file, &mut Vec::new());
            text.map(|text| key(&text))
        };
        assert!(key_now().is_err());
        fs::write(temp.path().join("more.txt"), "a").unwrap();
        let one = key_now().unwrap();
        fs::write(temp.path().join("more.txt"), "b").unwrap();
        assert_ne!(key_now().unwrap(), one);
    }
}
