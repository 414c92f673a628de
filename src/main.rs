//! The command.

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
