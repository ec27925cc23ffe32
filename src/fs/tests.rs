//! Tests within the process; those of the program are in tests/suite.

use super::*;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("fxc-fs-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<_> = names.map(|n| n.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_appears_when_it_is_finished() {
    let dir = Dir::new("appears");
    let path = dir.0.join("o.bin");
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"....second").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"head").unwrap();
    assert!(
        !path.exists() && dir.names().iter().all(|n| is_temporary(n)),
        "{:?}",
        dir.names()
    );
    file.finish().unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), dir.names()),
        (b"headsecond".to_vec(), vec!["o.bin".to_string()])
    );
    // What is given up leaves the old file.
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    drop(file);
    assert_eq!(
        (fs::read(&path).unwrap(), dir.names()),
        (b"headsecond".to_vec(), vec!["o.bin".to_string()])
    );
}

#[test]
fn names_may_be_as_long_as_the_system_allows() {
    let dir = Dir::new("long");
    for name in ["n".repeat(255), "ü".repeat(127)] {
        write(&dir.0.join(&name), b"x").unwrap();
        assert_eq!(fs::read(dir.0.join(&name)).unwrap(), b"x");
    }
}

#[test]
fn incomplete_files_of_others_are_left_alone() {
    let dir = Dir::new("others");
    let begun = OutputFile::create(&dir.0.join("o")).unwrap();
    let name = dir.names().remove(0);
    drop(begun);
    // The numbers of the next files, as another process with this number would have chosen them.
    let number: u32 = name
        .trim_end_matches(".fxc.tmp")
        .rsplit('-')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    for n in number..number + 1000 {
        fs::write(dir.0.join(format!(".o.{}-{n}.fxc.tmp", std::process::id())), "theirs").unwrap();
    }
    write(&dir.0.join("o"), b"ours").unwrap();
    assert_eq!(fs::read(dir.0.join("o")).unwrap(), b"ours");
    let theirs = dir.names().into_iter().filter(|n| is_temporary(n));
    let theirs: Vec<_> = theirs.map(|n| fs::read(dir.0.join(n)).unwrap()).collect();
    assert!(
        theirs.len() == 1000 && theirs.iter().all(|t| t == b"theirs"),
        "{}",
        theirs.len()
    );
}

#[test]
fn folders_contain_what_is_below_them() {
    let dir = Dir::new("folders");
    fs::create_dir_all(dir.0.join("a/b")).unwrap();
    fs::write(dir.0.join("a/b/f"), "").unwrap();
    fs::write(dir.0.join("a/b2"), "").unwrap();
    let inside = |file: &str, folder: &str| in_folders(&dir.0.join(file), &[dir.0.join(folder)]);
    assert!(inside("a/b/f", "a") && inside("a/b/f", "a/b") && inside("a/b/../b2", "a"));
    assert!(!inside("a/b2", "a/b") && !inside("a/b/../b2", "a/b") && !in_folders(&dir.0.join("a/b2"), &[]));
    assert!(inside("a/absent", "a/b"), "the open reports it");
    assert!(is_stream(Path::new("/dev/fd/3")) && !is_stream(Path::new("/dev/fd3")));
}
