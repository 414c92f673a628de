//! The command.

/// Payloads are made on one thread and let go of on another, message after message.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
