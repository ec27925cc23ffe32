//! Releases the memory of the compiler's own code, which runs do not need.

/// Releases the resident pages of this program's code, once. Compiling, packing weights and running each use only a
/// small part of the code, and the system reloads pages from its file cache when they are used again. In a process
/// that compiles one model and then calls it, most of the code is the compiler; otherwise its pages would count as
/// the process's memory for its whole life.
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
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::ops::Range;
    use std::os::unix::fs::FileExt;

    const MADV_DONTNEED: c_int = 4;

    // The bits of an entry of /proc/self/pagemap. See Documentation/admin-guide/mm/pagemap.rst of the kernel.
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    const OF_FILE: u64 = 1 << 61;

    unsafe extern "C" {
        fn madvise(at: *mut c_void, length: usize, advice: c_int) -> c_int;
        fn getpagesize() -> c_int;
    }

    pub(super) fn release_code_pages() {
        let address = release_code_pages as fn() as usize;
        let Ok(maps) = File::open("/proc/self/maps") else {
            return;
        };
        let code = code_mapping(BufReader::new(maps), address).filter(|c| is_unchanged(c) == Some(true));
        if let Some(code) = code {
            // SAFETY: the pages belong to a file, are not writable and have no private copies, so the system reloads
            // them unchanged.
            unsafe { madvise(code.start as *mut c_void, code.len(), MADV_DONTNEED) };
        }
    }

    /// The mapping that contains `address`, if it maps a file and is not writable.
    fn code_mapping(maps: impl BufRead, address: usize) -> Option<Range<usize>> {
        maps.lines().map_while(Result::ok).find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let hex = |s| usize::from_str_radix(s, 16).ok();
            let range = hex(from)?..hex(to)?;
            let (flags, inode) = (words.next()?, words.nth(2)?);
            range
                .contains(&address)
                .then(|| (flags == "r-xp" && inode != "0").then_some(range))
        })?
    }

    /// Whether the process has no private copy of any page of a mapping. (A debugger's breakpoints create some.)
    /// `/proc/self/smaps` contains this information too, but it counts the pages of all mappings, which takes a
    /// second in a process of many gigabytes.
    fn is_unchanged(code: &Range<usize>) -> Option<bool> {
        // SAFETY: the function only returns a number.
        let page = usize::try_from(unsafe { getpagesize() }).ok().filter(|p| *p > 0)?;
        let mut entries = vec![0u8; code.len() / page * 8];
        let pagemap = File::open("/proc/self/pagemap").ok()?;
        pagemap
            .read_exact_at(&mut entries, (code.start / page * 8) as u64)
            .ok()?;
        let mut entries = entries.as_chunks::<8>().0.iter().map(|e| u64::from_ne_bytes(*e));
        Some(entries.all(|e| e & PRESENT_OR_SWAPPED == 0 || e & OF_FILE != 0))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn code_is_found_and_runs_on() {
            let here = release_code_pages as fn() as usize;
            let maps = File::open("/proc/self/maps").expect("Linux tells");
            let code = code_mapping(BufReader::new(maps), here).expect("tests are a file's code");
            assert!(code.contains(&here) && is_unchanged(&code).is_some());
            release_code_pages();
        }

        #[test]
        fn memory_of_the_process_is_no_code_of_a_file() {
            let own = vec![1u8; 1 << 20];
            let start = (own.as_ptr() as usize).next_multiple_of(1 << 16);
            assert_eq!(is_unchanged(&(start..start + (1 << 18))), Some(false));
        }

        #[test]
        fn only_code_of_a_file_is_released() {
            let maps = |flags: &str, inode: &str| {
                format!(
                    "1000-2000 r--p 00000000 fe:00 7 /bin/x\n2000-8000 {flags} 00001000 fe:00 {inode} /bin/x\n\
                     8000-9000 rw-p 00000000 00:00 0\n"
                )
            };
            let find = |flags, inode, here| code_mapping(maps(flags, inode).as_bytes(), here);
            assert_eq!(find("r-xp", "7", 0x3000), Some(0x2000..0x8000));
            assert_eq!(find("rwxp", "7", 0x3000), None);
            assert_eq!(find("r-xp", "0", 0x3000), None);
            assert_eq!(find("r-xp", "7", 0x1800), None);
            assert_eq!(find("r-xp", "7", 0xa000), None);
        }
    }
}
