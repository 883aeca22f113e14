//! The date and the host of a report.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// The facts with which a reader can judge the figures.
#[derive(Clone, Debug)]
pub struct Host {
    /// Date, in UTC.
    pub date: String,
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// The kind of KVM and of its page tables.
    pub kvm: String,
}

impl Host {
    /// Describes this host, now.
    pub fn here() -> Self {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        Self {
            date: date(seconds / 86_400),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: field("/proc/meminfo", "MemTotal")
                .and_then(|value| value.strip_suffix("kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kib| kib >> 10),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            kvm: kvm(Path::new("/sys/module")),
        }
    }
}

/// Returns the value of the first line `name:` in a file of such lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().to_owned())
}

/// Returns the kind of KVM, by the kernel's modules.
fn kvm(modules: &Path) -> String {
    let kinds = [
        ("kvm_intel", "ept", "VMX"),
        ("kvm_amd", "npt", "SVM"),
        ("kvm_pvm", "", "software (kvm-pvm, shadow paging)"),
    ];
    let found = kinds
        .iter()
        .find(|(module, ..)| modules.join(module).is_dir());
    let Some((module, paging, kind)) = found else {
        return "unknown".to_owned();
    };
    let parameter = fs::read_to_string(modules.join(module).join("parameters").join(paging));
    match parameter {
        Ok(value) if value.trim() == "Y" || value.trim() == "1" => {
            format!("{kind} with {}", paging.to_uppercase())
        }
        Ok(_) => format!("{kind}, shadow paging"),
        Err(_) => (*kind).to_owned(),
    }
}

/// Returns the first line of the output of `program --version`.
pub fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// Returns the command that made a report, without the names of folders of this machine.
pub fn command(arguments: impl IntoIterator<Item = String>) -> String {
    let words: Vec<String> = arguments.into_iter().map(|word| portable(&word)).collect();
    words.join(" ")
}

/// Returns a word of a command. An absolute path is cut down to its last part, and the word is
/// quoted if it contains white space.
fn portable(word: &str) -> String {
    let (before, path) = match word.split_once('=') {
        Some((before, path)) => (format!("{before}="), path),
        None => (String::new(), word),
    };
    let shown = match path.rsplit_once('/') {
        Some((_, last)) if path.starts_with('/') => last,
        _ => path,
    };
    let word = format!("{before}{shown}");
    if word.contains(char::is_whitespace) {
        format!("'{word}'")
    } else {
        word
    }
}

/// Returns the date of a day by its number since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> String {
    let leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let (mut year, mut left) = (1970, days);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(19_722), "2023-12-31");
        assert_eq!(date(20_454), "2026-01-01");
    }

    #[test]
    fn a_command_names_no_folder_of_the_machine() {
        let words = [
            "/home/me/bin/faasw-bench",
            "report",
            "--function",
            "go=/tmp/go.wasm:auto",
        ];
        let words = words
            .map(str::to_owned)
            .into_iter()
            .chain(["examples/a.wasm".to_owned()]);
        assert_eq!(
            command(words),
            "faasw-bench report --function go=go.wasm:auto examples/a.wasm"
        );
    }

    #[test]
    fn a_word_with_spaces_is_quoted() {
        assert_eq!(portable("warm: --x=0"), "'warm: --x=0'");
    }

    #[test]
    fn the_kind_of_kvm_is_its_module_and_its_paging() {
        let modules = tempfile::tempdir().unwrap();
        assert_eq!(kvm(modules.path()), "unknown");
        let parameters = modules.path().join("kvm_amd/parameters");
        fs::create_dir_all(&parameters).unwrap();
        assert_eq!(kvm(modules.path()), "SVM");
        fs::write(parameters.join("npt"), "Y\n").unwrap();
        assert_eq!(kvm(modules.path()), "SVM with NPT");
        fs::write(parameters.join("npt"), "N\n").unwrap();
        assert_eq!(kvm(modules.path()), "SVM, shadow paging");
    }

    #[test]
    fn this_host_has_a_name_for_everything() {
        let host = Host::here();
        assert!(host.cores > 0 && host.memory_mib > 0 && !host.kernel.is_empty());
        assert_eq!(host.date.len(), 10);
    }
}
