//! How much memory the machine has available.

#[cfg(target_os = "linux")]
use std::fs;

/// The bytes that new allocations can use without displacing other programs: those of the system, and of the control
/// groups that the process is in. `None` if the system does not say.
pub(super) fn available_memory() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return available_of_system().map(|free| free.min(available_of_groups().unwrap_or(usize::MAX)));
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn available_of_system() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse::<usize>()
            .ok()
    };
    let free = kibibytes("MemAvailable")?.saturating_add(kibibytes("SwapFree").unwrap_or(0));
    Some(free.saturating_mul(1024))
}

/// The least that one of the control groups leaves: version 2, and the single group of version 1.
#[cfg(target_os = "linux")]
fn available_of_groups() -> Option<usize> {
    const ROOT: &str = "/sys/fs/cgroup";
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/");
    let mut folders = vec![format!("{ROOT}/memory")];
    let mut folder = path.trim_matches('/');
    loop {
        folders.push(format!("{ROOT}/{folder}"));
        match folder.rsplit_once('/') {
            Some((above, _)) => folder = above,
            None if folder.is_empty() => break,
            None => folder = "",
        }
    }
    folders.iter().filter_map(|f| available_of_group(f)).min()
}

#[cfg(target_os = "linux")]
fn available_of_group(folder: &str) -> Option<usize> {
    let number = |name: &str| -> Option<usize> {
        let text = fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse().ok()
    };
    // A group without a limit has the word `max`, or in version 1 a number beyond any memory.
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = fs::read_to_string(format!("{folder}/memory.stat")).unwrap_or_default();
    // Pages of files count as used, but the system drops them when memory is short.
    let files = stat.lines().find_map(|l| {
        let rest = l
            .strip_prefix("total_inactive_file ")
            .or_else(|| l.strip_prefix("inactive_file "))?;
        rest.trim().parse::<usize>().ok()
    });
    Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_is_free() {
        let free = available_memory().expect("Linux says so");
        assert!(free > 1 << 20 && free < 1 << 50, "{free}");
    }
}
