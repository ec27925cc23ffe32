//! "Did you mean …": finds the nearest name by edit distance.
//!
//! Names that differ only in case and underscores have distance 0. [`nearest`] compares a name with every candidate.
//! [`NameIndex`] gives the same answer using an index, for files with thousands of unknown names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum length of a name to look up, in bytes. Longer names are not typed by hand.
const LONGEST: usize = 256;

/// The candidate nearest to `name`, if it is near enough: at most a third of the name (of the last part of a dotted
/// path) and at most two letters differ.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = edit_limit(name)?;
    best_match(name, limit, candidates)
}

/// The number of letters that may differ; `None` for names that are too short or too long to compare.
fn edit_limit(name: &str) -> Option<usize> {
    // Only the last part of a dotted path counts: `torch.topk` is not a typo for `torch.conj`.
    let last = name.rsplit('.').find(|p| !p.is_empty()).unwrap_or(name).chars().count();
    // All one-letter names are near each other.
    (last >= 2 && name.len() <= LONGEST).then(|| (last / 3).clamp(1, 2))
}

fn best_match<'a>(name: &str, limit: usize, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (chars, folded) = (name.chars().collect::<Vec<_>>(), fold_name(name));
    candidates
        .into_iter()
        .filter_map(|c| edit_distance(&chars, &folded, c, limit).map(|d| (d, c)))
        .min_by_key(|&(d, c)| (d, c.len().abs_diff(name.len()), c))
        .map(|(_, c)| c)
}

/// Normalises a name: `max_pool2d` and `MaxPool2D` become equal.
pub fn fold_name(name: &str) -> String {
    name.chars()
        .filter(|&c| c != '_')
        .flat_map(char::to_lowercase)
        .collect()
}

/// The edit distance with transpositions (optimal string alignment), if it is at most `limit`; 0 for names that fold to
/// the same.
fn edit_distance(a: &[char], folded: &str, candidate: &str, limit: usize) -> Option<usize> {
    // A character has at most four bytes.
    if candidate.len() > 4 * (a.len() + limit) {
        return None;
    }
    if !folded.is_empty() && fold_name(candidate) == folded {
        return Some(0);
    }
    let b: Vec<char> = candidate.chars().collect();
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before: Vec<usize> = vec![];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, &cb) in b.iter().enumerate() {
            let mut best = (row[j] + (ca != cb) as usize).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        if next.iter().all(|&d| d > limit) {
            return None;
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|&d| d <= limit)
}

/// For each hash of a name with some letters deleted, the indices of the names.
type DeletionIndex = HashMap<u64, Vec<u32>, BuildHasherDefault<Hashed>>;

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|b| self.0 = self.0.rotate_left(8) ^ u64::from(*b));
    }

    fn write_u64(&mut self, hash: u64) {
        // The low bits of a polynomial hash depend mostly on the last letter.
        self.0 = hash ^ (hash >> 29).wrapping_mul(BASE);
    }
}

/// A set of names, indexed for repeated look-ups of misspelt names.
///
/// Two names within `d` edits of each other become equal when at most `d` letters are deleted from each. The index has
/// the hashes of each name with up to two letters deleted (one, for long names), so a look-up compares only a few
/// names.
pub struct NameIndex<'a> {
    list: Vec<&'a str>,
    looked_up: AtomicUsize,
    index: OnceLock<DeletionIndex>,
}

impl<'a> NameIndex<'a> {
    /// The number of look-ups that compare with every name before an index is built.
    const WITHOUT_INDEX: usize = 8;
    /// The maximum length of a name of which two letters are deleted.
    const SHORT: usize = 40;

    /// Creates a set of names.
    pub fn new(names: impl IntoIterator<Item = &'a str>) -> NameIndex<'a> {
        let mut list: Vec<&str> = names.into_iter().filter(|n| n.len() <= LONGEST).collect();
        list.sort_unstable();
        list.dedup();
        NameIndex {
            list,
            looked_up: AtomicUsize::new(0),
            index: OnceLock::new(),
        }
    }

    /// The nearest name to `name`. Equal to the result of [`nearest`] for names of up to 40 letters.
    pub fn nearest(&self, name: &str) -> Option<&'a str> {
        let limit = edit_limit(name)?;
        if self.looked_up.fetch_add(1, Ordering::Relaxed) < Self::WITHOUT_INDEX {
            return best_match(name, limit, self.list.iter().copied());
        }
        let index = self.index.get_or_init(|| self.make_index());
        let mut candidates: Vec<u32> = vec![];
        visit_keys(name, &mut |k| candidates.extend(index.get(&k).into_iter().flatten()));
        candidates.sort_unstable();
        candidates.dedup();
        best_match(name, limit, candidates.into_iter().map(|i| self.list[i as usize]))
    }

    fn make_index(&self) -> DeletionIndex {
        let mut index = DeletionIndex::default();
        for (i, name) in self.list.iter().enumerate() {
            visit_keys(name, &mut |k| index.entry(k).or_default().push(i as u32));
        }
        index
    }
}

/// The base of the polynomial hash. Hashes of pieces combine to the hash of the whole.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Calls `each` with the hash of the folded name, and the hashes of the name with some letters deleted.
fn visit_keys(name: &str, each: &mut dyn FnMut(u64)) {
    let push = |h: u64, c: char| h.wrapping_mul(BASE).wrapping_add(c as u64 + 1);
    // Names that differ only in case and underscores share a separate key.
    each(
        !name
            .chars()
            .filter(|&c| c != '_')
            .flat_map(char::to_lowercase)
            .fold(0, push),
    );
    let (mut heads, mut powers) = (vec![0u64], vec![1u64]);
    for c in name.chars() {
        heads.push(push(heads[heads.len() - 1], c));
        powers.push(powers[powers.len() - 1].wrapping_mul(BASE));
    }
    let n = heads.len() - 1;
    let piece = |from: usize, to: usize| heads[to].wrapping_sub(heads[from].wrapping_mul(powers[to - from]));
    let join = |h: u64, from: usize, to: usize| h.wrapping_mul(powers[to - from]).wrapping_add(piece(from, to));
    each(heads[n]);
    for (i, &head) in heads[..n].iter().enumerate() {
        each(join(head, i + 1, n));
        if n <= NameIndex::SHORT {
            (i + 1..n).for_each(|j| each(join(join(head, i + 1, j), j + 1, n)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_meant() {
        let names = ["relu", "gelu", "selu", "linear", "layer_norm"];
        assert_eq!(nearest("rleu", names), Some("relu"));
        assert_eq!(nearest("layernorm", names), Some("layer_norm"));
        assert_eq!(nearest("LayerNorm", names), Some("layer_norm"));
        assert_eq!(nearest("frobnicate", names), None);
        assert_eq!(nearest("torch.topk", ["torch.conj", "torch.stack"]), None);
        assert_eq!(nearest("torch.rleu", ["torch.relu", "torch.elu"]), Some("torch.relu"));
    }

    #[test]
    fn the_index_agrees_with_comparing_all() {
        let words: Vec<String> = (0..3000u32)
            .map(|i| format!("n{}_{}", i.wrapping_mul(2_654_435_761), i % 7))
            .collect();
        let names = NameIndex::new(words.iter().map(String::as_str));
        for (i, w) in words.iter().enumerate().take(300) {
            let mut mistyped: Vec<char> = w.chars().collect();
            let at = i % mistyped.len();
            match i % 4 {
                0 => drop(mistyped.remove(at)),
                1 => mistyped.insert(at, 'x'),
                2 => mistyped[at] = 'y',
                _ => mistyped.swap(at, 0),
            }
            let mistyped: String = mistyped.into_iter().collect();
            let all = nearest(&mistyped, words.iter().map(String::as_str));
            assert_eq!(names.nearest(&mistyped), all, "{mistyped}");
        }
    }
}
