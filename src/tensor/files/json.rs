//! JSON of bounded size.

use crate::budget;
use serde::de::{DeserializeOwned, Error};

/// The number of values that a document may have for each node that a model may have.
const VALUES_OF_NODE: usize = 2;

/// Parses a document. A tree of values takes up to fifty times the memory of its text, so a document with too many values is an error.
pub(crate) fn parse_json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    let most = budget::max_nodes().saturating_mul(VALUES_OF_NODE);
    // Most documents are far from the limit, and their strings need not be told from the rest.
    if text.len() > most && text.iter().filter(|b| begins_value(**b)).count() > most && count_values(text) > most {
        let what = format!("it has more than {most} values; raise `--max-nodes` if it is meant to be so large");
        return Err(serde_json::Error::custom(what));
    }
    serde_json::from_slice(text)
}

/// Whether a value may begin after this byte. Every value but the outermost follows one.
fn begins_value(byte: u8) -> bool {
    matches!(byte, b',' | b'[' | b'{')
}

/// At least the number of values of a document: strings do not count.
fn count_values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b => count += usize::from(!in_string && begins_value(b)),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Limits, with_limits};
    use serde_json::Value;

    #[test]
    fn documents_with_too_many_values_are_not_parsed() {
        let limits = Limits {
            nodes: Some(3),
            ..Limits::default()
        };
        with_limits(&limits, || {
            assert!(parse_json::<Value>(b"[1,2,3,4]").is_ok());
            assert!(parse_json::<Value>(br#"["a,b,c,d,e,f,g,h,i", "\",,,,,,,,,"]"#).is_ok());
            let error = parse_json::<Value>(b"[[],[],[],[],[],[],[]]").expect_err("too many");
            assert!(error.to_string().starts_with("it has more than 6 values"), "{error}");
        });
    }
}
