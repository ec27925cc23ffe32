//! Threads that do what nobody waits for.

/// Gives the calling thread the lowest priority, so that it does not delay the other threads of a machine whose processors are all busy.
/// Does nothing where threads have no priorities of their own.
pub fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        const LOWEST: libc::c_int = 19;
        // SAFETY: the call only changes how the system schedules a thread. On Linux, 0 is the calling thread, not the process.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
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
        assert_eq!(lowered.join().expect("no panic"), 19);
        assert_eq!(priority(), before);
    }
}
