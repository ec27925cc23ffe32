//! The compiler's own code, which runs do not need.

/// Lets the system take the pages of this program's code out of the process, once: kernels are compiled, and packing weights and
/// running need a small part of it, which comes back from the system's file cache when it is next called. Most of the code of a
/// process that compiles one model and then calls it is the compiler; the pages would count as its memory as long as it lives.
pub(super) fn release_compiler() {
    #[cfg(target_os = "linux")]
    {
        static DONE: std::sync::Once = std::sync::Once::new();
        DONE.call_once(linux::release_code_pages);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_int, c_void};
    use std::ops::Range;

    const MADV_DONTNEED: c_int = 4;

    unsafe extern "C" {
        fn madvise(at: *mut c_void, length: usize, advice: c_int) -> c_int;
    }

    pub(super) fn release_code_pages() {
        let here = release_code_pages as fn() as usize;
        let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else {
            return;
        };
        if let Some(code) = unchanged_code(&maps, here) {
            // SAFETY: these are a file's pages that the process may not write and has no copies of: they come back as they were.
            unsafe { madvise(code.start as *mut c_void, code.len(), MADV_DONTNEED) };
        }
    }

    /// The mapping around `here`, if it is of a file, cannot be written, and no page of it is the process's own (a debugger that sets
    /// breakpoints makes some so).
    fn unchanged_code(maps: &str, here: usize) -> Option<Range<usize>> {
        let mut lines = maps.lines();
        let code = lines.find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let hex = |s| usize::from_str_radix(s, 16).ok();
            let range = hex(from)?..hex(to)?;
            let (flags, inode) = (words.next()?, words.nth(2)?);
            range
                .contains(&here)
                .then(|| (flags == "r-xp" && inode != "0").then_some(range))
        })?;
        let own = lines.find_map(|l| l.strip_prefix("Anonymous:"))?;
        code.filter(|_| own.trim() == "0 kB")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn code_is_found_and_runs_on() {
            let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux tells");
            let here = release_code_pages as fn() as usize;
            let code = unchanged_code(&maps, here);
            assert!(code.is_none_or(|c| c.contains(&here)));
            release_code_pages();
            assert_eq!(unchanged_code(&maps, 1), None);
        }

        #[test]
        fn changed_code_stays() {
            let maps = |own: &str, inode: &str| {
                format!(
                    "1000-2000 r--p 00000000 fe:00 7 /bin/x\nAnonymous: 0 kB\n\
                     2000-8000 r-xp 00001000 fe:00 {inode} /bin/x\nRss: 16 kB\nAnonymous: {own} kB\nAnonHugePages: 0 kB\n"
                )
            };
            assert_eq!(unchanged_code(&maps("0", "7"), 0x3000), Some(0x2000..0x8000));
            assert_eq!(unchanged_code(&maps("4", "7"), 0x3000), None);
            assert_eq!(unchanged_code(&maps("0", "0"), 0x3000), None);
            assert_eq!(unchanged_code(&maps("0", "7"), 0x1800), None);
        }
    }
}
