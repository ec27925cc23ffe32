//! English words for messages: articles, plurals, and truncated texts.

/// `noun` with its indefinite article: `an int`, `a Tensor`.
pub fn with_article(noun: &str) -> String {
    let mut letters = noun.chars();
    let (first, second) = (letters.next().unwrap_or(' ').to_ascii_lowercase(), letters.next());
    // A letter followed by a digit is pronounced as the letter's name: an f32, a u8.
    let spelled = second.is_some_and(|c| c.is_ascii_digit());
    let consonant = !spelled
        && ["uni", "use", "one"]
            .iter()
            .any(|w| noun.to_ascii_lowercase().starts_with(w));
    let vowels = if spelled { "aefhilmnorsx" } else { "aeiou" };
    match vowels.contains(first) && !consonant {
        true => format!("an {noun}"),
        false => format!("a {noun}"),
    }
}

/// A count with its noun: `1 node`, `3 nodes`, `2 classes`, `2 entries`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        return format!("1 {noun}");
    }
    format!("{n} {}", pluralize(noun))
}

/// The regular plural of a noun.
pub fn pluralize(noun: &str) -> String {
    let before_y = noun
        .strip_suffix('y')
        .filter(|s| !s.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with(['s', 'x', 'z']) || noun.ends_with("ch") || noun.ends_with("sh") => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

/// The maximum length of a displayed word, in characters.
const WORD: usize = 120;
/// The maximum length of a displayed text, in bytes.
const TEXT: usize = 2000;

/// The start of a text that is not valid, escaped. What is cut off could be megabytes long.
pub fn escape_piece(text: &str) -> String {
    let start = &text[..text.floor_char_boundary(WORD)];
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{}{more}", start.escape_debug())
}

/// Truncates `text`: long words (such as a name of a megabyte) in the middle, and a long text at its end.
pub fn clip_text(text: String) -> String {
    if text.len() <= WORD {
        return text;
    }
    let mut out = String::with_capacity(text.len().min(TEXT) + 8);
    for piece in text.split_inclusive(char::is_whitespace) {
        if out.len() + piece.len().min(WORD) > TEXT {
            out.truncate(out.trim_end().len());
            out.push_str(" …");
            break;
        }
        if piece.len() <= WORD {
            out.push_str(piece);
            continue;
        }
        out.push_str(&piece[..piece.floor_char_boundary(WORD / 2)]);
        out.push('…');
        out.push_str(&piece[piece.ceil_char_boundary(piece.len() - WORD / 3)..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn articles_and_plurals_are_english() {
        for (noun, want) in [
            ("int", "an int"),
            ("Tensor", "a Tensor"),
            ("op", "an op"),
            ("f32 tensor", "an f32 tensor"),
            ("u8 tensor", "a u8 tensor"),
            ("bf16 tensor", "a bf16 tensor"),
            ("i64", "an i64"),
            ("unknown size", "an unknown size"),
            ("unique name", "a unique name"),
        ] {
            assert_eq!(with_article(noun), want);
        }
        assert_eq!(
            [count(0, "node"), count(1, "node"), count(2, "class"), count(3, "entry")],
            ["0 nodes", "1 node", "2 classes", "3 entries"]
        );
    }

    #[test]
    fn long_texts_are_cut_once() {
        let name = "é".repeat(1 << 20);
        let text = clip_text(format!("unknown op `{name}`, which is long"));
        assert!(
            text.len() < 300 && text.starts_with("unknown op `é") && text.ends_with("long"),
            "{text}"
        );
        assert_eq!(clip_text(text.clone()), text);
        let many = clip_text("word ".repeat(1 << 20));
        assert!(many.len() <= TEXT + 8 && many.ends_with('…'));
        assert_eq!(clip_text(many.clone()), many);
    }
}
