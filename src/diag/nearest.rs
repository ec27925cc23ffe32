//! "Did you mean …": the nearest name by edit distance.

/// The candidate nearest to `name`, if one is near enough to be meant: at most a third of the name (of the last part of
/// a dotted path) changed.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Of a dotted path the last part counts: `torch.topk` is not meant as `torch.conj`.
    let last = name.rsplit('.').find(|p| !p.is_empty()).unwrap_or(name).chars().count();
    // Every one-letter name is near to every other.
    if last < 2 {
        return None;
    }
    let limit = (last / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|c| distance(name, c, limit).map(|d| (d, c)))
        .min_by_key(|&(d, c)| (d, c.len().abs_diff(name.len()), c))
        .map(|(_, c)| c)
}

/// Edit distance with transpositions (optimal string alignment), or `None` if it is above `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
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
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|&d| d <= limit)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_the_name_meant() {
        let names = ["relu", "gelu", "selu", "linear", "layer_norm"];
        assert_eq!(nearest("rleu", names), Some("relu"));
        assert_eq!(nearest("layernorm", names), Some("layer_norm"));
        assert_eq!(nearest("frobnicate", names), None);
        assert_eq!(nearest("torch.topk", ["torch.conj", "torch.stack"]), None);
        assert_eq!(nearest("torch.rleu", ["torch.relu", "torch.elu"]), Some("torch.relu"));
    }
}
