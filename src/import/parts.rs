//! JSON documents whose large parts are parsed one at a time.
//!
//! A tree of JSON values takes more than ten times the memory of its text. Most of a graph's document consists of its
//! nodes and the types of its values, and the reader needs only one of these at a time. The rest is a small tree.

use super::json::Bad;
use crate::budget;
use crate::tensor::files::parse_json;
use serde_json::Value;
use std::ops::Range;

/// The nodes of a document's graph and the types of its tensors, as text.
#[derive(Default)]
pub(super) struct GraphParts {
    text: Vec<u8>,
    nodes: Vec<Range<usize>>,
    tensors: Vec<JsonMember>,
}

/// A member of an object: its quoted key and its value.
type JsonMember = [Range<usize>; 2];

impl GraphParts {
    /// Extracts the items of `graph_module.graph.nodes` and the members of `graph_module.graph.tensor_values` from a
    /// document, and returns the rest as a tree. A document with any other structure is not split.
    pub(super) fn split_document(text: Vec<u8>) -> serde_json::Result<(Value, GraphParts)> {
        let Some((rest, nodes, tensors)) = split_graph_parts(&text) else {
            return Ok((parse_json(&text)?, GraphParts::default()));
        };
        match parse_json(&rest) {
            Ok(v) => Ok((v, GraphParts { text, nodes, tensors })),
            // Parse the whole document, so that the error has the right position.
            Err(_) => Ok((parse_json(&text)?, GraphParts::default())),
        }
    }

    /// The extracted nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Result<Value, Bad>> {
        self.nodes.iter().map(|r| self.parse_range(r))
    }

    /// The extracted names and types.
    pub(super) fn tensor_types(&self) -> impl Iterator<Item = Result<(String, Value), Bad>> {
        self.tensors.iter().map(|[name, ty]| {
            let name = parse_json(&self.text[name.clone()]).map_err(not_json)?;
            Ok((name, self.parse_range(ty)?))
        })
    }

    fn parse_range(&self, at: &Range<usize>) -> Result<Value, Bad> {
        parse_json(&self.text[at.clone()]).map_err(not_json)
    }
}

fn not_json(e: serde_json::Error) -> Bad {
    format!("it is not JSON: {e}").into()
}

/// A document without the nodes and types of its graph, and the ranges of these.
type SplitDocument = (Vec<u8>, Vec<Range<usize>>, Vec<JsonMember>);

fn split_graph_parts(text: &[u8]) -> Option<SplitDocument> {
    let (root, end) = scan_members(text, skip_space(text, 0))?;
    if skip_space(text, end) != text.len() {
        return None;
    }
    let module = scan_members(text, unique_member(text, &root, "graph_module")?.start)?.0;
    let graph = scan_members(text, unique_member(text, &module, "graph")?.start)?.0;
    let (nodes, values) = (
        unique_member(text, &graph, "nodes")?,
        unique_member(text, &graph, "tensor_values")?,
    );
    let items = scan_items(text, nodes.start)?.0;
    let tensors = scan_members(text, values.start)?.0;
    // If an object has several members with the same name, the last one counts. Such a document is not split.
    let mut names: Vec<&[u8]> = tensors.iter().map(|[name, _]| &text[name.clone()]).collect();
    names.sort_unstable();
    if names.windows(2).any(|w| w[0] == w[1]) {
        return None;
    }
    let mut holes = [(nodes, "[]"), (values, "{}")];
    holes.sort_by_key(|(r, _)| r.start);
    let mut rest = vec![];
    let mut from = 0;
    for (hole, empty) in holes {
        rest.extend_from_slice(&text[from..hole.start]);
        rest.extend_from_slice(empty.as_bytes());
        from = hole.end;
    }
    rest.extend_from_slice(&text[from..]);
    Some((rest, items, tensors))
}

/// The value of the only member called `key`.
fn unique_member(text: &[u8], members: &[JsonMember], key: &str) -> Option<Range<usize>> {
    let is = |m: &&JsonMember| text[m[0].start + 1..m[0].end - 1] == *key.as_bytes();
    let mut found = members.iter().filter(is);
    let [_, value] = found.next()?;
    found.next().is_none().then(|| value.clone())
}

/// The members of the object that begins at `at`, and its end.
fn scan_members(text: &[u8], at: usize) -> Option<(Vec<JsonMember>, usize)> {
    scan_sequence(text, at, [b'{', b'}'], |i| {
        let key = i..skip_string(text, i)?;
        let i = skip_space(text, key.end);
        let begin = skip_space(text, (text.get(i) == Some(&b':')).then_some(i + 1)?);
        let end = skip_value(text, begin)?;
        Some(([key, begin..end], end))
    })
}

/// The items of the list that begins at `at`, and its end.
fn scan_items(text: &[u8], at: usize) -> Option<(Vec<Range<usize>>, usize)> {
    scan_sequence(text, at, [b'[', b']'], |i| {
        let end = skip_value(text, i)?;
        Some((i..end, end))
    })
}

/// Calls `one` for each item between brackets and commas. Returns the results, and the end of the closing bracket.
fn scan_sequence<T>(
    text: &[u8],
    at: usize,
    [open, close]: [u8; 2],
    read_item: impl Fn(usize) -> Option<(T, usize)>,
) -> Option<(Vec<T>, usize)> {
    let mut out = vec![];
    if text.get(at) != Some(&open) {
        return None;
    }
    let mut i = skip_space(text, at + 1);
    if text.get(i) == Some(&close) {
        return Some((out, i + 1));
    }
    loop {
        let (item, end) = read_item(i)?;
        // What has more items is refused when it is parsed whole.
        if out.len() >= budget::max_nodes() {
            return None;
        }
        out.push(item);
        i = skip_space(text, end);
        match text.get(i)? {
            b',' => i = skip_space(text, i + 1),
            b if *b == close => return Some((out, i + 1)),
            _ => return None,
        }
    }
}

/// The end of the value that begins at `at`. Its content is validated when it is parsed.
fn skip_value(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => skip_string(text, at),
        b'{' | b'[' => skip_nested(text, at),
        _ => {
            let end = |b: &u8| matches!(b, b',' | b'}' | b']') || b.is_ascii_whitespace();
            let len = text[at..].iter().position(end)?;
            (len > 0).then_some(at + len)
        }
    }
}

/// The end of the object or array that begins at `at`.
fn skip_nested(text: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut i) = (0usize, at);
    loop {
        match text.get(i)? {
            b'"' => {
                i = skip_string(text, i)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        i += 1;
        if depth == 0 {
            return Some(i);
        }
    }
}

/// The end of the string that begins at `at`.
fn skip_string(text: &[u8], at: usize) -> Option<usize> {
    let mut i = (text.get(at) == Some(&b'"')).then_some(at + 1)?;
    loop {
        match text.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

fn skip_space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|b| b.is_ascii_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parts(text: &str) -> (Value, Vec<Value>, Vec<(String, Value)>) {
        let (rest, parts) = GraphParts::split_document(text.as_bytes().to_vec()).expect("JSON");
        let nodes = parts.nodes().map(|n| n.expect("a node")).collect();
        (rest, nodes, parts.tensor_types().map(|t| t.expect("a type")).collect())
    }

    #[test]
    fn nodes_and_types_are_taken_out() {
        let text = r#" {"a": 1.5, "graph_module": {"s": "}\"", "graph": {"inputs": [], "tensor_values": {"x": {"d": [7]}, "y\n": 2},
            "nodes": [ {"t": "a]\\"}, 3 , [] ], "z": null}}, "e": [] } "#;
        let (rest, nodes, types) = parts(text);
        assert_eq!(nodes, [json!({"t": "a]\\"}), json!(3), json!([])]);
        assert_eq!(types, [("x".into(), json!({"d": [7]})), ("y\n".into(), json!(2))]);
        let graph = json!({"inputs": [], "tensor_values": {}, "nodes": [], "z": null});
        assert_eq!(
            rest,
            json!({"a": 1.5, "graph_module": {"s": "}\"", "graph": graph}, "e": []})
        );
    }

    #[test]
    fn other_documents_stay_whole() {
        for text in [
            "3",
            "{}",
            r#"{"graph_module": {"graph": {"nodes": [1]}}}"#,
            r#"{"graph_module": {"graph": {"nodes": 1, "tensor_values": {}}}}"#,
            r#"{"graph_module": {"graph": {"nodes": [1], "nodes": [2], "tensor_values": {}}}}"#,
            r#"{"graph_module": {"graph": {"nodes": [1], "tensor_values": {"a": 1, "a": 2}}}}"#,
        ] {
            let (rest, nodes, types) = parts(text);
            assert_eq!(
                (rest, nodes.len(), types.len()),
                (serde_json::from_str(text).expect("JSON"), 0, 0)
            );
        }
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        let sound =
            r#"{"graph_module": {"graph": {"nodes": [{"a": "b"}, 2], "tensor_values": {"x": {"d": 7}}}}, "k": [1]}"#;
        for cut in 0..sound.len() {
            assert!(
                GraphParts::split_document(sound.as_bytes()[..cut].to_vec()).is_err(),
                "{cut} bytes"
            );
        }
        // An error inside a node is found when the node is parsed.
        let bad = sound.replace(r#"{"a": "b"}"#, r#"{"a" "b"}"#);
        let (_, parts) = GraphParts::split_document(bad.into_bytes()).expect("a tree");
        assert!(parts.nodes().next().expect("a node").is_err());
        for bad in [
            sound.replace("[1]", "[1,]"),
            sound.replace("2]", "2 3]"),
            format!("{sound} x"),
        ] {
            assert!(GraphParts::split_document(bad.into_bytes()).is_err());
        }
    }
}
