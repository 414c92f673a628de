//! The `organism` command.

/// The global allocator, mimalloc. It is fast if one OS thread allocates and another frees, as
/// happens with each message's payload. The feature `no_thp` disables huge pages, because clearing
/// them took two fifths of the processor time of a short command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    organism::cli::main()
}
