//! Links the guest as a static image at fixed addresses, without any start-up files.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=link.ld");
    // A copy in the target folder, because cargo reuses this output when the sources have moved to
    // another path.
    let script = Path::new(&std::env::var("OUT_DIR")?).join("link.ld");
    std::fs::copy("link.ld", &script)?;
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        &format!("-T{}", script.display()),
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,max-page-size=4096",
        "-Wl,--gc-sections",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    Ok(())
}
