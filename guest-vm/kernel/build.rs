//! Links the guest as a static image at fixed addresses, without any start-up files.

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".to_owned());
    for argument in [
        "-nostartfiles".to_owned(),
        "-nostdlib".to_owned(),
        "-static".to_owned(),
        "-no-pie".to_owned(),
        format!("-T{manifest}/link.ld"),
        "-Wl,--build-id=none".to_owned(),
        "-Wl,-z,norelro".to_owned(),
        "-Wl,-z,max-page-size=4096".to_owned(),
        "-Wl,--gc-sections".to_owned(),
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
