//! The `faasw` program: the library's node from the command line.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
