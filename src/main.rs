//! The program: arguments in, exit code out.

/// All memory counts towards `--max-memory`.
#[global_allocator]
static HEAP: fxc::CountingAllocator = fxc::CountingAllocator;

fn main() -> std::process::ExitCode {
    fxc::internals::cli::main()
}
