//! Ends a text before the first of some texts, which may be spread over several tokens.

/// The texts that end a generated text, and what was generated but may be the beginning of one.
pub(super) struct StopTexts {
    stops: Vec<String>,
    held: String,
    is_found: bool,
}

impl StopTexts {
    pub(super) fn new(stops: &[String]) -> StopTexts {
        StopTexts {
            stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(),
            held: String::new(),
            is_found: false,
        }
    }

    /// Adds a piece of text. Returns what certainly comes before a stop text.
    pub(super) fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min();
        if let Some(at) = first {
            self.is_found = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let kept = self
            .stops
            .iter()
            .map(|s| self.length_of_begun_stop(s))
            .max()
            .unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, rest)
    }

    /// The number of bytes at the end of the text that are the beginning of a stop text.
    fn length_of_begun_stop(&self, stop: &str) -> usize {
        let starts = stop.char_indices().map(|(i, _)| i).skip(1);
        let fits = |n: &usize| self.held.ends_with(&stop[..*n]);
        starts.filter(fits).max().unwrap_or(0)
    }

    /// Whether the text has ended.
    pub(super) fn is_found(&self) -> bool {
        self.is_found
    }

    /// What was held back at the end of a text without a stop text.
    pub(super) fn take_rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that is shown for these pieces.
    fn shown(stops: &[&str], pieces: &[&str]) -> Vec<String> {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut texts = StopTexts::new(&stops);
        let mut out = vec![];
        for p in pieces {
            out.push(texts.push(p));
            if texts.is_found() {
                return out;
            }
        }
        out.push(texts.take_rest());
        out
    }

    #[test]
    fn a_text_ends_before_a_stop_text_across_pieces() {
        assert_eq!(shown(&["END"], &["a E", "N", "D b"]), ["a ", "", ""]);
        assert_eq!(shown(&["END"], &["a E", "Nb"]), ["a ", "ENb", ""]);
        assert_eq!(shown(&["END"], &["a E"]), ["a ", "E"]);
        assert_eq!(shown(&["\n\n", "."], &["one.two\n\n"]), ["one"]);
        assert_eq!(shown(&["ééé"], &["é", "éa", "éé", "é!"]), ["", "ééa", "", ""]);
        assert_eq!(shown(&[], &["a", "b"]), ["a", "b", ""]);
        assert_eq!(shown(&[""], &["a"]), ["a", ""]);
    }
}
