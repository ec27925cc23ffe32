//! Mapped files that lose their bytes.
//!
//! Another program may shorten a file that is mapped. The system then answers a read with the signal SIGBUS, whose default
//! is to end the process without a word. A program cannot go on, because the read has no value, but it can say so.

use std::sync::OnceLock;

/// What is said, and what is done before the process ends.
static LAST_WORDS: OnceLock<(Vec<u8>, fn())> = OnceLock::new();

/// Makes the process write `message` to standard error, call `clean_up` and exit with the code 2 when a mapped file has
/// lost its bytes. `clean_up` runs in a signal handler: it must neither allocate memory nor wait. For programs that own
/// their process; does nothing on systems other than Linux.
pub(crate) fn explain_lost_files(message: Vec<u8>, clean_up: fn()) {
    if LAST_WORDS.set((message, clean_up)).is_ok() {
        #[cfg(target_os = "linux")]
        install();
    }
}

#[cfg(target_os = "linux")]
fn install() {
    let handler: extern "C" fn(libc::c_int) = on_lost_file;
    // SAFETY: the handler only calls functions that are allowed in one, and all fields of the action are set: zeros are
    // an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        // On the alternate stack that the standard library gives its threads, where there is one.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

#[cfg(target_os = "linux")]
extern "C" fn on_lost_file(_: libc::c_int) {
    match LAST_WORDS.get() {
        Some((message, clean_up)) => end_process(message, *clean_up, 2),
        None => end_process(b"", || {}, 2),
    }
}

/// Writes `message` to standard error, calls `clean_up` and ends the process. Nothing else of it runs: no lock is taken, no memory is
/// allocated, and the C library's own end, which may need memory, is left out.
pub(crate) fn end_process(message: &[u8], clean_up: fn(), code: i32) -> ! {
    #[cfg(unix)]
    {
        // SAFETY: the message is readable.
        unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
        clean_up();
        // SAFETY: ends the process without running anything else of it.
        unsafe { libc::_exit(code) }
    }
    #[cfg(not(unix))]
    {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), message);
        clean_up();
        std::process::exit(code)
    }
}
