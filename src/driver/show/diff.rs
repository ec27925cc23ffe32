//! Line-by-line diffs of two texts, to show what a pass changed.

/// The maximal number of lines to compare on each side. Longer texts are shown as replaced.
const LONGEST: usize = 4000;

/// A unified diff: removed lines of `before` with `-`, new lines of `after` with `+`, and `context` lines around them.
/// Empty if the texts are equal.
pub(crate) fn unified_diff(before: &str, after: &str, context: usize) -> String {
    show_lines(&diff_lines(before, after), context)
}

/// The diff in the format of `diff -u`, for people and for `patch`: hunks with their positions, and `context` lines
/// around changes.
pub(crate) fn patch_text(before: &str, after: &str, context: usize) -> String {
    let lines = diff_lines(before, after);
    let changed: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].0 != ' ').collect();
    let mut out = String::new();
    let mut rest = &changed[..];
    while let Some(&first) = rest.first() {
        // Changes whose contexts touch share a hunk.
        let n = rest
            .windows(2)
            .position(|w| w[1] - w[0] > 2 * context + 1)
            .map_or(rest.len(), |i| i + 1);
        let (from, to) = (
            first.saturating_sub(context),
            (rest[n - 1] + context + 1).min(lines.len()),
        );
        let count = |range: &[(char, &str)], not: char| range.iter().filter(|(mark, _)| *mark != not).count();
        let place = |not: char| {
            let (start, len) = (count(&lines[..from], not), count(&lines[from..to], not));
            format!("{},{len}", start + (len > 0) as usize)
        };
        out.push_str(&format!("@@ -{} +{} @@\n", place('+'), place('-')));
        lines[from..to]
            .iter()
            .for_each(|(mark, line)| out.push_str(&format!("{mark}{line}\n")));
        rest = &rest[n..];
    }
    out
}

/// The lines of both texts: common lines with a space, others with `-` or `+`. Empty if the texts are equal.
fn diff_lines<'t>(before: &'t str, after: &'t str) -> Vec<(char, &'t str)> {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let tail = a[head..]
        .iter()
        .rev()
        .zip(b[head..].iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    let (x, y) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    if x.is_empty() && y.is_empty() {
        return vec![];
    }
    let mut lines: Vec<(char, &str)> = a[..head].iter().map(|l| (' ', *l)).collect();
    lines.extend(diff_middle(x, y));
    lines.extend(a[a.len() - tail..].iter().map(|l| (' ', *l)));
    lines
}

/// The diff of the lines between a common start and end, by a longest common subsequence.
fn diff_middle<'t>(a: &[&'t str], b: &[&'t str]) -> Vec<(char, &'t str)> {
    if a.len().max(b.len()) > LONGEST {
        let gone = a.iter().map(|l| ('-', *l));
        return gone.chain(b.iter().map(|l| ('+', *l))).collect();
    }
    let width = b.len() + 1;
    // common[i][j]: the length of the longest common subsequence of a[i..] and b[j..].
    let mut common = vec![0u16; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i * width + j] = match a[i] == b[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = vec![];
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            out.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            out.push(('-', a[i]));
            i += 1;
        } else {
            out.push(('+', b[j]));
            j += 1;
        }
    }
    out
}

fn show_lines(lines: &[(char, &str)], context: usize) -> String {
    let is_near_change = |i: usize| {
        let from = i.saturating_sub(context);
        let to = (i + context + 1).min(lines.len());
        lines[from..to].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut out = String::new();
    let mut gap = false;
    for (i, (mark, line)) in lines.iter().enumerate() {
        if is_near_change(i) {
            if gap {
                out.push_str("  …\n");
            }
            gap = false;
            out.push_str(&format!("{mark} {line}\n"));
        } else {
            gap = true;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_stand_with_their_neighbours() {
        let a = "one\ntwo\nthree\nfour\nfive\nsix";
        let b = "one\ntwo\n3\nfour\nfive\nsix\nseven";
        assert_eq!(
            unified_diff(a, b, 1),
            "  …\n  two\n- three\n+ 3\n  four\n  …\n  six\n+ seven\n"
        );
        assert_eq!(unified_diff(a, a, 3), "");
        assert_eq!(unified_diff("", "x", 0), "+ x\n");
        assert_eq!(unified_diff("x\ny", "", 0), "- x\n- y\n");
    }

    #[test]
    fn a_patch_says_where_its_hunks_are() {
        let a: String = (1..=20).map(|i| format!("{i}\n")).collect();
        let b = a.replace("\n3\n", "\nthree\n").replace("\n18\n", "\n18\nnew\n");
        let want = "@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n@@ -18,2 +18,3 @@\n 18\n+new\n 19\n";
        assert_eq!(patch_text(&a, &b, 1), want);
        assert_eq!(patch_text("", "x\n", 3), "@@ -0,0 +1,1 @@\n+x\n");
        assert_eq!(patch_text(&a, &a, 3), "");
    }

    #[test]
    fn a_diff_gives_both_texts_back() {
        let mut seed = 1u64;
        for _ in 0..200 {
            let mut text = || {
                let mut out = vec![];
                for _ in 0..8 {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    out.push(["a", "b", "c"][(seed >> 60) as usize % 3]);
                }
                out.join("\n")
            };
            let (a, b) = (text(), text());
            let diff = unified_diff(&a, &b, 100);
            let side = |skip: char| {
                let lines = diff.lines().filter(|l| !l.starts_with(skip));
                lines.map(|l| &l[2..]).collect::<Vec<_>>().join("\n")
            };
            if a != b {
                assert_eq!((side('+'), side('-')), (a, b), "{diff}");
            }
        }
    }
}
