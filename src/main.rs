//! The `organism` command.

/// For every message, payloads are allocated on one thread and freed on another, which mimalloc
/// does fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
