use super::*;

#[test]
fn memory_is_aligned_and_large_memory_asks_for_huge_pages() {
    for len in [0, 1, 100, PAGES - 1, PAGES, HUGE - 1, HUGE, 3 * HUGE + 5] {
        let mut b = AlignedBytes::zeroed(len);
        assert!(b.bytes().iter().all(|&x| x == 0) && b.bytes().len() == len);
        b.bytes_mut().fill(1);
        let at = b.bytes().as_ptr() as usize;
        assert_eq!(at % ALIGN, 0, "{len} bytes");
        assert!(len < HUGE || at.is_multiple_of(HUGE), "{len} bytes");
        match flags(at) {
            Some(flags) => assert_eq!(flags.contains(" hg"), len >= HUGE, "{len} bytes: {flags}"),
            None => println!("skipped: this system does not tell how memory is mapped"),
        }
    }
}

/// Linux's flags of the mapping that holds an address.
fn flags(at: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut lines = maps.lines();
    let holds = |l: &str| {
        let (from, to) = l.split_once(' ')?.0.split_once('-')?;
        let hex = |s| usize::from_str_radix(s, 16).ok();
        Some(hex(from)? <= at && at < hex(to)?)
    };
    lines.find(|l| holds(l) == Some(true))?;
    lines.find(|l| l.starts_with("VmFlags")).map(|l| format!("{l} "))
}

#[test]
fn bytes_of_a_file_are_copied_before_they_are_written() {
    let path = std::env::temp_dir().join(format!("fxc-mapped-{}", std::process::id()));
    std::fs::write(&path, [7u8; 4096]).expect("a file is written");
    let map = super::super::map_file(&path).expect("it is mapped");
    let mut b = AlignedBytes::mapped(&map, 64..128).expect("the bytes are there");
    assert_eq!(b.address() as usize, map.as_ptr() as usize + 64);
    b.bytes_mut().fill(1);
    assert!(b.bytes() == [1; 64] && map.iter().all(|&x| x == 7));
    assert!(AlignedBytes::mapped(&map, 1..9).is_none(), "not aligned");
    assert!(AlignedBytes::mapped(&map, 4096 - 64..4097).is_none(), "beyond the end");
    let _ = std::fs::remove_file(&path);
}

#[test]
fn places_name_bytes_and_what_is_computed_of_them() {
    let t = Tensor::from_slice(&[2], &[1.0f32, 2.0]);
    let made = |what: &[u64]| {
        let storage = Storage::deferred(t.clone(), what.into(), 8, |t| AlignedBytes::from_slice(t.bytes()));
        Tensor::from_storage(crate::types::DType::F32, &[2], storage)
    };
    let (a, b, c) = (made(&[1]), made(&[1]), made(&[2]));
    assert_eq!(a.life().bytes_id(), b.life().bytes_id());
    assert!(a.life().bytes_id() != c.life().bytes_id() && a.life().bytes_id() != t.life().bytes_id());
    assert!(a.life().is_alive());
    let life = t.clone().life();
    drop((a, b, c, t));
    assert!(!life.is_alive());
}
