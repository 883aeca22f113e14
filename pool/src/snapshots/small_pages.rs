//! The kernel setting that layers and code need if they are filled while guests run.

use std::path::{Path, PathBuf};

/// Returns whether the kernel makes single pages of files in memory unless large ones are
/// requested. With large pages, touching a page of zeros would also make zeros of the pages beside
/// it that are still to come (`Documentation/admin-guide/mm/transhuge.rst`).
pub fn has_small_pages() -> bool {
    const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
    let is_small = |setting: &Path| {
        // A kernel without large pages has no such file.
        let Ok(text) = std::fs::read_to_string(setting) else {
            return true;
        };
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        matches!(chosen, Some(("never" | "deny" | "advise" | "inherit", _)))
    };
    let sizes = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let folders = sizes.map(|size| size.path()).chain([PathBuf::from(FOLDER)]);
    let mut settings = folders.map(|folder| folder.join("shmem_enabled"));
    settings.all(|setting| is_small(&setting))
}
