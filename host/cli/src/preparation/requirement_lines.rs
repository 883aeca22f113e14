//! Checks a `requirements.txt` and the files that it includes.
//!
//! pip must not run a package's own code while it installs it. So requirements that are no wheels
//! are rejected, and so are options that permit them. The lines are split as pip splits them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::exit::Exit;

/// Maximum bytes of one file.
const FILE_MAX: u64 = 1 << 20;

/// Maximum number of files, of which each may include others.
const FILES_MAX: usize = 64;

/// Options without a value that leave pip with wheels only.
const FLAGS: [&str; 4] = ["--pre", "--prefer-binary", "--require-hashes", "--no-index"];

/// Options with a value that leave pip with wheels only. Their values may have variables.
const WITH_VALUE: [&str; 7] = [
    "--hash",
    "--index-url",
    "-i",
    "--extra-index-url",
    "--find-links",
    "-f",
    "--trusted-host",
];

/// Options that include another file.
const INCLUDES: [&str; 4] = ["--requirement", "-r", "--constraint", "-c"];

/// Returns the contents of a file and of all files that it includes, one behind the other. Adds
/// the paths of the included files to `included`.
///
/// # Errors
/// Returns an error that names file and line if pip would install anything but wheels, or if a file
/// cannot be read.
pub fn read_checked(file: &Path, included: &mut Vec<PathBuf>) -> Result<String, Exit> {
    let mut all = String::new();
    let mut waiting = vec![file.to_owned()];
    while let Some(next) = waiting.pop() {
        let text = read_text(&next).map_err(|error| Exit::unreadable(&next, error))?;
        for (number, line) in logical_lines(&text) {
            let includes = check(&line).map_err(|(why, hint)| {
                Exit::failure(format_args!("{}:{number}: {why}", next.display())).hint(hint)
            })?;
            for path in includes {
                let path = next.parent().unwrap_or(&next).join(path);
                if path == file || included.contains(&path) {
                    continue;
                }
                if included.len() >= FILES_MAX {
                    return Err(Exit::failure(format_args!(
                        "{} includes more than {FILES_MAX} files",
                        file.display()
                    )));
                }
                included.push(path.clone());
                waiting.push(path);
            }
        }
        all.push_str(&text);
        all.push('\0');
    }
    Ok(all)
}

fn read_text(file: &Path) -> io::Result<String> {
    let status = fs::metadata(file)?;
    if !status.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if status.len() > FILE_MAX {
        return Err(io::Error::other("it is too large"));
    }
    fs::read_to_string(file)
}

/// Returns the lines with the number of their first part. A backslash at a line's end continues it.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut joined = String::new();
    let mut first = 1;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        if joined.is_empty() {
            first = index + 1;
        }
        let is_comment = line.trim_start().starts_with('#');
        if line.ends_with('\\') && !is_comment {
            joined.push_str(line.trim_matches('\\'));
            continue;
        }
        if is_comment {
            joined.push(' ');
        }
        joined.push_str(line);
        found.push((first, std::mem::take(&mut joined)));
    }
    if !joined.is_empty() {
        found.push((first, joined));
    }
    found
}

/// Why a line is rejected, and what to do.
type Rejection = (String, &'static str);

/// The remedy for packages that are no wheels, and for options that permit them.
const BUILDS: &str = "installing could run the package's code: use a wheel (`pip wheel` makes \
                      one), or put the package into the script's folder";

/// The remedy for text that pip may read in another way.
const PLAIN: &str = "write the line without it";

/// Checks a line. Returns the files that it includes.
fn check(line: &str) -> Result<Vec<String>, Rejection> {
    let is_odd = |c: char| (c.is_control() && c != '\t') || matches!(c, '\u{2028}' | '\u{2029}');
    if line.contains(is_odd) {
        return Err(("the line has a control character".into(), PLAIN));
    }
    // pip reads the file in the encoding that a comment names.
    let encodings = line.split("coding:").skip(1);
    let mut encodings = encodings.chain(line.split("coding=").skip(1));
    if line.starts_with('#') && encodings.any(|name| !name.trim_start().starts_with("utf-8")) {
        return Err(("the file must be UTF-8".into(), PLAIN));
    }
    let words: Vec<&str> = without_comment(line).split_whitespace().collect();
    let options = words.iter().position(|word| word.starts_with('-'));
    let (requirement, options) = words.split_at(options.unwrap_or(words.len()));
    check_requirement(requirement)?;
    check_options(options)
}

/// Returns a line up to its comment, which begins at a `#` behind white space.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return line.get(..at).unwrap_or(line);
        }
        before = c;
    }
    line
}

fn check_requirement(words: &[&str]) -> Result<(), Rejection> {
    let text = words.join(" ");
    if text.contains("${") {
        return Err((format!("{text:?} has a variable"), PLAIN));
    }
    let is_direct = text.contains(['@', '/', ':', '\\']) || text.starts_with(['.', '~']);
    if !is_direct {
        return Ok(());
    }
    // NAME[EXTRAS] @ LOCATION; MARKER
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.[], ".contains(c);
    let location = match text.split_once('@') {
        Some((name, location)) if name.chars().all(is_name) => location.trim(),
        _ => text.as_str(),
    };
    let (location, marker) = location.split_once(' ').unwrap_or((location, ""));
    let is_url = location.contains(':');
    let place = if is_url {
        location.split(['?', '#']).next().unwrap_or_default()
    } else {
        location
    };
    let is_wheel = place.ends_with(".whl")
        && !place.contains(';')
        && (marker.is_empty() || marker.starts_with(';'));
    let is_known = ["https://", "http://", "file:///", "/"]
        .iter()
        .any(|start| place.starts_with(start));
    match (is_wheel, is_known) {
        (true, true) => Ok(()),
        (true, false) if !is_url => Err((
            format!("{location:?} is a relative path"),
            "write the wheel's absolute path",
        )),
        _ => Err((format!("{location:?} is not a wheel"), BUILDS)),
    }
}

fn check_options(words: &[&str]) -> Result<Vec<String>, Rejection> {
    let mut included = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, attached) = if word.starts_with("--") {
            match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (*word, None),
            }
        } else {
            // -rFILE
            match word.split_at_checked(2) {
                Some((name, value)) if !value.is_empty() => (name, Some(value)),
                _ => (*word, None),
            }
        };
        if FLAGS.contains(&name) && attached.is_none() {
            continue;
        }
        let is_include = INCLUDES.contains(&name);
        if !is_include && !WITH_VALUE.contains(&name) {
            return Err((format!("the option {name} is not supported"), BUILDS));
        }
        let value = attached.or_else(|| words.next().copied());
        let value = value.ok_or_else(|| (format!("the option {name} has no value"), PLAIN))?;
        if value.contains(['"', '\'', '\\']) {
            return Err((format!("{value:?} has a quote or a backslash"), PLAIN));
        }
        if is_include {
            if value.contains(':') || value.contains("${") {
                let what = format!("{value:?} is not the path of a file");
                return Err((what, "copy the file beside this one, and include that"));
            }
            included.push(value.to_owned());
        }
    }
    Ok(included)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_and_names_are_accepted() {
        for line in [
            "",
            "# a comment -e .",
            "# -*- coding: utf-8 -*-",
            "flask",
            "flask==3.0 ; python_version > \"3.8\"  # why",
            "uvicorn[standard]>=0.2,<1",
            "flask==3 --hash=sha256:abc --hash sha256:def",
            "--pre",
            "-i https://${TOKEN}@example.test/simple",
            "--extra-index-url=https://example.test/simple --trusted-host example.test",
            "a @ https://example.test/a-1-py3-none-any.whl#sha256=00 ; python_version > '3'",
            "https://user@example.test/a-1-py3-none-any.whl",
            "/opt/wheels/a-1-py3-none-any.whl",
            "file:///opt/wheels/a-1-py3-none-any.whl",
        ] {
            assert_eq!(check(line), Ok(Vec::new()), "{line}");
        }
    }

    #[test]
    fn everything_that_runs_a_packages_code_is_rejected() {
        for line in [
            "-e .",
            "-e.",
            "--editable=.",
            "--edit .",
            "--no-binary :all:",
            "--no-b=:all:",
            "--only-binary :none:",
            "--pre --no-binary=flask",
            "--pre \"--no-binary\" :all:",
            "--pre \\-\\-no-binary :all:",
            "flask --config-settings=a=b",
            ".",
            "./package",
            "~/package",
            "../a-1-py3-none-any.whl",
            "/opt/package",
            "git+https://example.test/a.git",
            "a @ git+ssh://git@example.test/a.whl",
            "a@hg+https://example.test/a",
            "https://example.test/a.tar.gz",
            "https://example.test/a.tar.gz#x.whl",
            "https://example.test/a.zip?x.whl",
            "https://example.test/a.whl;b.tar.gz",
            "a @ file:b.tar.gz",
            "a @ ${HOME}/x.whl",
            "# coding: utf-7",
            "# a\r-e .",
            "# a\u{2028}-e .",
            "-r https://example.test/requirements.txt",
        ] {
            assert!(check(line).is_err(), "{line}");
        }
    }

    #[test]
    fn included_files_are_checked_and_returned() {
        let temp = tempfile::tempdir().unwrap();
        let at = |path: &str| temp.path().join(path);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("one.txt"), "-rsub/two.txt\n--constraint=sub/three.txt\n").unwrap();
        fs::write(at("sub/two.txt"), "flask\n--requirement \\\nfour.txt\n").unwrap();
        fs::write(at("sub/three.txt"), "-c three.txt\n").unwrap();
        fs::write(at("sub/four.txt"), "flask\n\nflask \\\n --no-binary x\n").unwrap();
        let mut included = Vec::new();
        let exit = read_checked(&at("one.txt"), &mut included).unwrap_err();
        let start = format!("{}:3: ", at("sub/four.txt").display());
        assert!(exit.to_string().starts_with(&start), "{exit}");
        fs::write(at("sub/four.txt"), "").unwrap();
        included.clear();
        assert!(read_checked(&at("one.txt"), &mut included).is_ok());
        included.sort();
        let expected = ["sub/four.txt", "sub/three.txt", "sub/two.txt"].map(at);
        assert_eq!(included, expected);
    }
}
