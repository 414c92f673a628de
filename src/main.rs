//! The `organism` command.

/// Payloads are allocated on one thread and freed on another for every message; mimalloc is fast at
/// that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
