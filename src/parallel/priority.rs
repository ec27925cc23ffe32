//! Threads that do what nobody waits for.

/// Gives the calling thread a low priority: a tenth of the time of a processor that another thread wants too. (With the lowest, a process
/// that waits for the thread at its end would wait for a minute on a busy machine.) Does nothing where threads have no priorities of
/// their own.
pub(crate) fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        const LOW: libc::c_int = 10;
        // SAFETY: the calls only read and change how the system schedules a thread. On Linux, 0 is the calling thread, not the process.
        unsafe {
            if libc::getpriority(libc::PRIO_PROCESS, 0) < LOW {
                libc::setpriority(libc::PRIO_PROCESS, 0, LOW);
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn only_the_calling_thread_yields() {
        // SAFETY: the call only reads the priority of the calling thread.
        let priority = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = priority();
        let lowered = std::thread::spawn(move || {
            super::yield_to_others();
            priority()
        });
        assert_eq!(lowered.join().expect("no panic"), before.max(10));
        assert_eq!(priority(), before);
    }
}
