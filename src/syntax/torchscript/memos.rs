//! Memo dicts of modules, in which a script caches results: `if key not in self.cache: self.cache[key] = …`.
//!
//! The text does not have the contents of a dict attribute. The contents of such a memo would only be recomputed, so it
//! is assumed to be empty.

use super::tree::{Attr, Node};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The operators that may use a memo, which take the key after it.
const USES: [&str; 3] = ["aten::__contains__", "aten::__getitem__", "aten::_set_item"];

/// The attributes by the names of the values that read them, and the conditions on them.
#[derive(Default)]
struct MemoScan<'n> {
    attributes: HashMap<&'n Arc<str>, &'n str>,
    /// The dict that a condition tests, and whether the condition says that a key is missing.
    missing: HashMap<&'n Arc<str>, (&'n str, bool)>,
    written: HashSet<&'n str>,
    /// Those with any other use.
    other: HashSet<&'n str>,
}

/// The names of the memo attributes: dicts that the script reads by key and writes only if the key is missing.
pub(super) fn find_memos(nodes: &[Node]) -> HashSet<Arc<str>> {
    let mut scan = MemoScan::default();
    scan.scan_nodes(nodes, &[]);
    let memo = |name: &&&str| !scan.other.contains(**name);
    scan.written.iter().filter(memo).map(|&name| name.into()).collect()
}

/// The name in `prim::GetAttr[name="cache"]`.
fn attr_name(attr: &Attr) -> &str {
    attr.text.trim_matches('"')
}

impl<'n> MemoScan<'n> {
    /// `missing` has the dicts that lack a key here.
    fn scan_nodes(&mut self, nodes: &'n [Node], missing: &[&'n str]) {
        for n in nodes {
            self.scan_node(n, missing);
        }
    }

    fn scan_node(&mut self, n: &'n Node, missing: &[&'n str]) {
        let dicts: Vec<&str> = n
            .args
            .iter()
            .filter_map(|a| self.attributes.get(&a.name).copied())
            .collect();
        let condition = n.args.first().and_then(|a| self.missing.get(&a.name).copied());
        let out = n.outputs.first();
        match (&*n.op, &dicts[..], out) {
            ("prim::GetAttr", _, Some(out)) if &*out.ty.name == "Dict" => {
                if let Some(attr) = n.attrs.first() {
                    self.attributes.insert(&out.name, attr_name(attr));
                }
            }
            ("aten::__contains__", [dict], Some(out)) => {
                self.missing.insert(&out.name, (dict, false));
            }
            ("aten::__not__", [], Some(out)) => {
                if let Some((dict, missing)) = condition {
                    self.missing.insert(&out.name, (dict, !missing));
                }
            }
            ("aten::_set_item", [dict], _) => {
                self.written.insert(dict);
                if !missing.contains(dict) {
                    self.other.insert(dict);
                }
            }
            (op, dicts, _) if !USES.contains(&op) => self.other.extend(dicts),
            _ => {}
        }
        for (i, block) in n.blocks.iter().enumerate() {
            let lacks = condition.filter(|&(_, missing)| &*n.op == "prim::If" && missing == (i == 0));
            self.scan_nodes(&block.nodes, &[missing, lacks.map(|c| c.0).as_slice()].concat());
            for r in &block.results {
                self.other.extend(self.attributes.get(&r.name).copied());
            }
        }
    }
}
