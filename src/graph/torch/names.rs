//! Names in generated Python: a single namespace for values, functions and types, like torch's `_Namespace`.

use super::pyrepr::{is_identifier, is_keyword};
use crate::graph::{Arg, Graph, Namer, NodeId, namer};
use crate::types::Val;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// The maximum nesting depth of a type annotation. Deeper ones are treated as one opaque name.
const TYPE_DEPTH: usize = 64;

/// Methods of `torch.Tensor` that are implemented in Python. Only these have a module and keep their dotted path.
const PYTHON_METHODS: &[&str] = &[
    "backward",
    "dim_order",
    "index",
    "is_shared",
    "istft",
    "lu",
    "norm",
    "register_hook",
    "share_memory_",
    "split",
    "stft",
    "to_sparse_coo",
    "unflatten",
    "unique",
    "unique_consecutive",
];

/// The namespace of one generated function.
pub(super) struct PythonNames {
    namer: Namer,
    nodes: HashMap<NodeId, String>,
    globals: IndexMap<String, String>,
    /// Names from Python and torch that the source uses.
    needed: HashSet<String>,
}

impl PythonNames {
    /// The namespace of a graph. `self` is the module, unless the first parameter has that name.
    pub(super) fn new(graph: &Graph) -> PythonNames {
        let mut namer = Namer::default();
        let first = graph.placeholders().first().map(|&p| graph[p].target());
        if first != Some("self") {
            namer.reserve("self");
        }
        PythonNames {
            namer,
            nodes: HashMap::new(),
            globals: IndexMap::new(),
            needed: HashSet::new(),
        }
    }

    /// The name of a value, given the name `wish` of its node.
    pub(super) fn node(&mut self, n: NodeId, wish: &str) -> String {
        if let Some(name) = self.nodes.get(&n) {
            return name.clone();
        }
        let name = self.namer.create(wish);
        self.nodes.insert(n, name.clone());
        name
    }

    /// The name of a value that already has one.
    pub(super) fn known_name(&self, n: NodeId) -> &str {
        self.nodes.get(&n).map_or("None", String::as_str)
    }

    /// The name of the function `target` in the source, and torch's qualified name for it.
    pub(super) fn function(&mut self, target: &str) -> (String, String) {
        if let Some(name) = target.strip_prefix("builtins.") {
            self.require_name(name);
            return (name.to_string(), name.to_string());
        }
        let path = match target.strip_prefix("operator.") {
            Some(name) => format!("_operator.{name}"),
            None => target.to_string(),
        };
        (self.global(&path), path)
    }

    fn global(&mut self, path: &str) -> String {
        if is_torch(path) {
            self.require_name("torch");
            let (root, rest) = path.split_once('.').unwrap_or((path, ""));
            let text = format_target(root, rest);
            if text.contains("getattr(") {
                self.require_name("getattr");
            }
            return text;
        }
        match path {
            "torch.device" | "device" => return "device".into(),
            "NoneType" | "None" => return "NoneType".into(),
            // A builtin keeps its own name. For that reason no value may have that name.
            _ if !path.contains('.') && namer::is_illegal(path) && !is_keyword(path) => {
                self.require_name(path);
                return path.into();
            }
            _ => {}
        }
        if let Some(name) = self.globals.get(path) {
            return name.clone();
        }
        let name = self.namer.create(path);
        self.require_name(&name);
        self.globals.insert(path.into(), name.clone());
        name
    }

    /// Whether torch can record the function `path` during tracing only if it was wrapped.
    pub(super) fn is_wrapped(&self, path: &str) -> bool {
        let head = path.split('.').next().unwrap_or(path);
        path.contains('.') && head != "_operator" && head != "torch" && is_identifier(head)
    }

    /// The text of a type annotation: `typing.Optional[int]` is `typing_Union[int,NoneType]`.
    pub(super) fn type_repr(&mut self, ty: &str) -> String {
        self.type_at(ty.trim(), 0)
    }

    fn type_at(&mut self, ty: &str, depth: usize) -> String {
        if depth > TYPE_DEPTH {
            return self.global(ty);
        }
        let alternatives = split_top(ty, " | ");
        if alternatives.len() > 1 {
            return self.generic("typing.Union", &alternatives, depth);
        }
        let Some((origin, inner)) = ty.strip_suffix(']').and_then(|t| t.split_once('[')) else {
            return self.global(ty);
        };
        let mut args = split_top(inner, ", ");
        args.retain(|a| !a.is_empty() && *a != "()");
        match origin {
            "typing.Optional" => {
                args.push("NoneType");
                self.generic("typing.Union", &args, depth)
            }
            "typing.Sequence" | "typing.Iterable" | "typing.Mapping" | "typing.Callable" | "typing.Iterator" => {
                let origin = origin.replace("typing.", "collections.abc.");
                self.generic(&origin, &args, depth)
            }
            _ => self.generic(origin, &args, depth),
        }
    }

    fn generic(&mut self, origin: &str, args: &[&str], depth: usize) -> String {
        let origin = self.global(origin);
        if args.is_empty() {
            return origin;
        }
        let args: Vec<String> = args.iter().map(|a| self.type_at(a, depth + 1)).collect();
        format!("{origin}[{}]", args.join(","))
    }

    /// Records the names that the text of `v` uses.
    pub(super) fn note_names(&mut self, v: &Arg) {
        match v {
            Val::Float(x) => self.note_float(*x),
            Val::Complex(a, b) => {
                self.require_name("complex");
                self.note_float(*a);
                self.note_float(*b);
            }
            Val::DType(_) | Val::TorchName(_) => self.require_name("torch"),
            Val::Device(_) => self.require_name("device"),
            Val::Opaque(t) if t.starts_with("aten.") || t.starts_with("tensor(") => self.require_name("torch"),
            Val::Ellipsis => self.require_name("Ellipsis"),
            Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| self.note_names(x)),
            Val::Dict(v) => v.iter().for_each(|(k, x)| {
                self.note_names(k);
                self.note_names(x);
            }),
            Val::Slice(v) => {
                self.require_name("slice");
                v.iter().for_each(|x| self.note_names(x));
            }
            Val::Range(v) => {
                self.require_name("range");
                v.iter().for_each(|x| self.note_names(x));
            }
            _ => {}
        }
    }

    fn note_float(&mut self, x: f64) {
        if x.is_nan() {
            self.require_name("nan");
        } else if x.is_infinite() {
            self.require_name("inf");
        }
    }

    pub(super) fn require_name(&mut self, name: &str) {
        if !self.needed.contains(name) {
            self.needed.insert(name.into());
        }
    }

    pub(super) fn is_needed(&self, name: &str) -> bool {
        self.needed.contains(name)
    }

    /// The functions and types from outside: name and path.
    pub(super) fn into_globals(self) -> Vec<(String, String)> {
        self.globals.into_iter().map(|(path, name)| (name, path)).collect()
    }
}

/// `base.a.b`, with `getattr` for parts that are not plain attribute names.
pub(super) fn format_target(base: &str, path: &str) -> String {
    let mut out = base.to_string();
    for part in path.split('.') {
        if is_identifier(part) && !is_keyword(part) {
            out = format!("{out}.{part}");
        } else {
            out = format!("getattr({out}, {})", crate::types::write_str(part));
        }
    }
    out
}

/// torch's `_is_from_torch`: functions that generated code may call by their full path.
fn is_torch(path: &str) -> bool {
    if path == "torch.device" || !path.starts_with("torch.") {
        return false;
    }
    if path.starts_with("torch._dynamo.") || path.starts_with("torch._inductor.") {
        return false;
    }
    match path.strip_prefix("torch.Tensor.") {
        Some(method) => PYTHON_METHODS.contains(&method),
        None => true,
    }
}

/// Splits `s` at the separators that are outside of brackets.
fn split_top<'a>(s: &'a str, separator: &str) -> Vec<&'a str> {
    let mut depth = 0usize;
    let mut out = vec![];
    let mut start = 0;
    for (i, c) in s.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && i >= start && s[i..].starts_with(separator) => {
                out.push(&s[start..i]);
                start = i + separator.len();
            }
            _ => {}
        }
    }
    out.push(&s[start.min(s.len())..]);
    out
}
