//! The `organism` command.

/// The global allocator. Payloads are allocated on one thread and freed on another for every
/// message, and mimalloc does this fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
