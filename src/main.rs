//! The `organism` command.

/// The global allocator. Payloads are allocated on one thread and freed on another for every
/// message, and mimalloc does this fast. The feature `no_thp` disables huge pages, because clearing
/// huge pages took two fifths of the processor time of a short command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
