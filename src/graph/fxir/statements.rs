//! Converts the statements of one graph to nodes.

use super::origins::DeclaredOrigins;
use super::script;
use crate::diag::{Code, Diagnostic, Diagnostics, NameIndex};
use crate::graph::{Arg, Graph, Mutation, NodeId, Opcode, PyTreeParams, TorchLine};
use crate::op;
use crate::source::Span;
use crate::syntax::ast::{self, Dialect, Op, Update, ValueKind};
use crate::syntax::resolve;
use crate::types::{Type, Val};
use indexmap::IndexMap;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A graph under construction.
pub(super) struct Statements<'a> {
    graph: Graph,
    nodes: HashMap<Arc<str>, NodeId>,
    /// Nodes with statements that could not be read, which has been reported.
    broken: HashSet<&'a str>,
    /// Each node with the statement it is built from.
    built: Vec<(NodeId, &'a ast::Stmt)>,
    /// The names in the text, to suggest one for an undefined name.
    known: OnceCell<NameIndex<'a>>,
    /// Whether functions have the names that generated Python gives them.
    python: bool,
    /// Whether calls are in TorchScript form.
    script: bool,
    /// The frames and modules that statements name.
    origins: &'a DeclaredOrigins,
    out: &'a mut Diagnostics,
}

impl<'a> Statements<'a> {
    /// Builds the graph of `g` and adds errors to `out`.
    pub(super) fn build(g: &'a ast::Graph, origins: &'a DeclaredOrigins, out: &'a mut Diagnostics) -> Graph {
        let (torch, fragment) = match &g.dialect {
            Dialect::Fxir | Dialect::Python(_) | Dialect::Script => (None, false),
            Dialect::Torch(t) => (Some(t.clone()), t.fragment),
        };
        let mut s = Statements {
            graph: Graph::new(),
            nodes: HashMap::new(),
            broken: g.body.broken.iter().map(|n| &**n).collect(),
            built: vec![],
            known: OnceCell::new(),
            python: matches!(g.dialect, Dialect::Python(_)),
            script: g.dialect == Dialect::Script,
            origins,
            out,
        };
        s.graph.set_torch_frame(torch);
        s.graph.mutations = g.updates.iter().map(to_mutation).collect();
        s.create_nodes(&g.body);
        let text = |n: &ast::Name| n.text.to_string();
        let texts = |names: &Vec<ast::Name>| names.iter().map(text).collect();
        s.graph.called = g.called.as_ref().map(|c| PyTreeParams {
            args: texts(&c.args),
            kwargs: c.kwargs.as_ref().map(texts),
            inputs: s.graph.placeholders().len(),
        });
        if fragment {
            s.imply_placeholders();
        }
        s.fill_args();
        s.check_updates(&g.updates);
        if fragment && s.graph.output().is_none() {
            s.imply_output();
        }
        s.note_torch_lines();
        s.graph
    }

    /// Creates all nodes, without arguments. A statement may name a later node; lint reports that with a better
    /// message.
    fn create_nodes(&mut self, body: &'a ast::Body) {
        let mut first: HashMap<&str, Span> = HashMap::new();
        // Explicit names take precedence over generated ones.
        let named = body.stmts.iter().filter_map(|s| s.name.as_ref());
        let used_names: HashSet<&str> = named.map(|n| &*n.text).collect();
        for stmt in &body.stmts {
            let (op, mut target) = opcode_and_target(stmt);
            if self.python && op == Opcode::CallFunction {
                target = global_path(target);
            }
            let generated;
            let name = match &stmt.name {
                Some(n) => n,
                None => {
                    let free = std::iter::once("output".to_string()).chain((1..).map(|i| format!("output_{i}")));
                    let mut free = free.filter(|n| !used_names.contains(&**n) && !self.nodes.contains_key(&**n));
                    generated = ast::Name::new(free.next().unwrap_or_default(), stmt.span);
                    &generated
                }
            };
            match self.graph.create_named(op, &target, vec![], vec![], &name.text) {
                Ok(id) => {
                    self.set_meta(id, stmt);
                    self.nodes.insert(name.text.clone(), id);
                    self.built.push((id, stmt));
                    if let Some(n) = &stmt.name {
                        first.insert(&n.text, n.span);
                    }
                }
                Err(_) => self.out.push(redefinition_error(name, first.get(&*name.text).copied())),
            }
        }
    }

    fn set_meta(&mut self, id: NodeId, stmt: &ast::Stmt) {
        let ty = stmt.ty.as_ref().map(|t| resolve::ty(t, self.out));
        let meta = self.graph.meta_mut(id);
        // Python does not enforce annotations, so those are not facts. The types of tensors that torch prints are.
        let known = |t: &Type| *t != Val::Unknown && (stmt.torch.is_none() || t.as_leaf().is_some());
        meta.ty = ty.filter(known);
        // The size of a number comes from the tracer and is not a declaration of the user.
        meta.declared = meta.ty.is_some() && !matches!(&stmt.ty, Some(t) if matches!(t.kind, ast::TypeKind::Size(_)));
        meta.optional = matches!(&stmt.ty, Some(t) if matches!(t.kind, ast::TypeKind::OptionalTensor));
        meta.span = Some(stmt.span);
        self.origins.note_origin(stmt, meta, self.out);
    }

    /// Records the source text of a node whose arguments have not been changed since parsing.
    fn note_text(&mut self, id: NodeId, stmt: &ast::Stmt) {
        let text = self.graph.text_mut(id);
        text.type_span = stmt.ty.as_ref().filter(|_| stmt.torch.is_none()).map(|t| t.span);
        match &stmt.op {
            Op::Placeholder { target, default } => {
                text.target_span = Some(target.span);
                text.arg_spans = default.iter().map(|v| v.span).collect();
            }
            Op::GetAttr { target } => text.target_span = Some(target.span),
            Op::Call { target, args, .. } => {
                let keyword = |(k, v): &(ast::Name, ast::Value)| (k.text.clone(), k.span, v.span);
                text.target_span = Some(target.span);
                text.arg_spans = args.positional.iter().map(|v| v.span).collect();
                text.keyword_spans = args.keyword.iter().map(keyword).collect();
            }
            Op::Output { value } => text.arg_spans = vec![value.span],
        }
        let python = stmt.ty.as_ref().and_then(|t| t.kind.annotation());
        let annotation = stmt.torch.as_ref().map(|t| t.annotation.trim());
        text.annotation = annotation.filter(|a| !a.is_empty()).map(Arc::from).or(python);
    }

    /// In a fragment, an undefined name is a value from outside and becomes a placeholder.
    fn imply_placeholders(&mut self) {
        let mut names = vec![];
        for (_, stmt) in &self.built {
            op_values(&stmt.op).for_each(|v| node_names(v, &mut names));
        }
        let mut next = self.graph.first();
        for name in names {
            if self.nodes.contains_key(&name) || self.broken.contains(&*name) {
                continue;
            }
            let make = |g: &mut Graph| g.create_named(Opcode::Placeholder, &name, vec![], vec![], &name);
            if let Ok(Ok(id)) = self.graph.inserting_before(next, make) {
                next = next.or_else(|| self.graph.next(id));
                self.nodes.insert(name, id);
            }
        }
    }

    /// A fragment without `return` returns its unused values.
    fn imply_output(&mut self) {
        let loose = |n: &NodeId| self.graph[*n].users().len() == 0 && self.graph[*n].op() != Opcode::Placeholder;
        let ends: Vec<Arg> = self.graph.iter().filter(loose).map(Val::Leaf).collect();
        self.graph.set_output(Val::Tuple(ends));
    }

    fn fill_args(&mut self) {
        for (id, stmt) in self.built.clone() {
            let (args, kwargs) = match &stmt.op {
                Op::Call { args, .. } => (&args.positional[..], &args.keyword[..]),
                Op::Output { value } => (std::slice::from_ref(value), &[][..]),
                Op::Placeholder { default: Some(v), .. } => (std::slice::from_ref(v), &[][..]),
                _ => (&[][..], &[][..]),
            };
            let mut args: Vec<Arg> = args.iter().map(|v| self.build_value(v)).collect();
            let mut kwargs = self.build_kwargs(kwargs);
            if self.script {
                let (op, target) = (self.graph[id].op(), self.graph[id].target().to_string());
                let (target, positional, keyword) = script::resolve_call(op, &target, args);
                self.graph.set_target(id, op, &target);
                args = positional;
                kwargs.extend(keyword);
            }
            self.graph.set_args(id, args);
            self.graph.set_kwargs(id, kwargs);
            self.note_text(id, stmt);
        }
    }

    fn build_kwargs(&mut self, list: &[(ast::Name, ast::Value)]) -> Vec<(Arc<str>, Arg)> {
        let mut out: IndexMap<Arc<str>, (Span, Arg)> = IndexMap::new();
        for (k, v) in list {
            let value = self.build_value(v);
            if let Some((first, _)) = out.get(&k.text) {
                let title = format!("keyword argument `{}` is given twice", k.text);
                let d = Diagnostic::new(Code::E0103, title).at(k.span, "second value here");
                self.out.push(d.see(*first, "first value here"));
                continue;
            }
            out.insert(k.text.clone(), (k.span, value));
        }
        out.into_iter().map(|(k, (_, v))| (k, v)).collect()
    }

    fn build_value(&mut self, v: &ast::Value) -> Arg {
        let (nodes, broken, mut missing) = (&self.nodes, &self.broken, vec![]);
        let mut node = |n: &str, span: Span| match nodes.get(n) {
            Some(&id) => Some(Val::Leaf(id)),
            None => {
                if !broken.contains(n) {
                    missing.push((n.to_string(), span));
                }
                None
            }
        };
        let value = resolve::value(v, &mut node, self.out);
        // A `$literal` of a rule has been reported by the parser.
        for (name, span) in missing.into_iter().filter(|(n, _)| !n.starts_with('$')) {
            let d = undefined_node(&name, span, self.known.get_or_init(|| known_names(&self.built)));
            self.out.push(d);
        }
        value
    }

    fn check_updates(&mut self, updates: &[Update]) {
        for u in updates {
            let Update::Input(n) = u else { continue };
            let id = self.nodes.get(&n.text);
            if id.is_none_or(|&id| self.graph[id].op() != Opcode::Placeholder) {
                let d = Diagnostic::new(Code::E0101, format!("unknown placeholder `%{}`", n.text));
                self.out
                    .push(d.at(n.span, "only placeholders and buffers can be updated"));
            }
        }
    }

    /// Records what torch's printer needs to reproduce the text, now that users are known.
    fn note_torch_lines(&mut self) {
        if self.graph.torch_frame().is_none() {
            return;
        }
        let read: HashMap<NodeId, &ast::Stmt> = self.built.iter().copied().collect();
        for id in self.graph.ids() {
            let node = &self.graph[id];
            let target: Arc<str> = node.target().into();
            let users = node.users().len() as i64;
            let stmt = read.get(&id);
            let t = stmt.and_then(|s| s.torch.as_deref());
            let line = TorchLine {
                indent: t.map_or_else(|| "".into(), |t| t.indent.clone()),
                tag: t.and_then(|t| t.tag.as_ref()).map(|tag| tag.word.clone()),
                hidden_users: t.and_then(|t| t.tag.as_ref()).map_or(0, |tag| tag.count as i64 - users),
                written: stmt.and_then(|s| written_target(s)).unwrap_or_else(|| target.clone()),
                target,
                form: t.map(|t| t.form),
            };
            self.graph.text_mut(id).torch = Some(Box::new(line));
        }
    }
}

/// The path of a function that generated Python calls by its path with underscores for dots, if the op table has it.
fn global_path(name: Arc<str>) -> Arc<str> {
    let known = ["torch.", "operator.", "builtins.", "math."]
        .iter()
        .any(|m| name.starts_with(m));
    if known || op::by_name(&name).is_some() {
        return name;
    }
    let plain = |b: u8| if b == b'.' { b'_' } else { b };
    let same = |p: &&str| p.len() == name.len() && p.bytes().map(plain).eq(name.bytes().map(plain));
    let mut paths = op::all().iter().flat_map(|o| o.forms.iter().flat_map(|f| f.paths()));
    paths.find(same).map_or(name.clone(), Arc::from)
}

fn to_mutation(u: &Update) -> Mutation {
    match u {
        Update::Buffer(n) => Mutation::Buffer(n.text.clone()),
        Update::Input(n) => Mutation::Input(n.text.clone()),
    }
}

/// The opcode and target of a statement.
fn opcode_and_target(stmt: &ast::Stmt) -> (Opcode, Arc<str>) {
    match &stmt.op {
        Op::Placeholder { target, .. } => (Opcode::Placeholder, target.text.clone()),
        Op::GetAttr { target } => (Opcode::GetAttr, target.text.clone()),
        Op::Output { .. } => (Opcode::Output, "output".into()),
        Op::Call { kind, target, .. } => match kind {
            ast::CallKind::Method => (Opcode::CallMethod, target.text.clone()),
            ast::CallKind::Module => (Opcode::CallModule, target.text.clone()),
            ast::CallKind::Function if stmt.torch.is_some() => (Opcode::CallFunction, function_path(&target.text)),
            ast::CallKind::Function => (Opcode::CallFunction, target.text.clone()),
        },
    }
}

/// The path of a function that old versions of torch print as an object: `<built-in function add>`.
fn function_path(text: &Arc<str>) -> Arc<str> {
    let object = text.strip_prefix('<').and_then(|t| t.strip_suffix('>'));
    let path = object.and_then(|t| match t.split_once(' ') {
        Some(("built-in", rest)) => {
            let (kind, rest) = rest.split_once(' ')?;
            let name = rest.split(' ').next()?;
            match kind {
                "function" if matches!(name, "getattr" | "len" | "abs" | "max" | "min" | "sum" | "round") => {
                    Some(format!("builtins.{name}"))
                }
                "function" => Some(format!("operator.{name}")),
                "method" => Some(format!("torch.{name}")),
                _ => None,
            }
        }
        _ => None,
    });
    path.map_or_else(|| text.clone(), Arc::from)
}

/// The target as written in the text.
fn written_target(stmt: &ast::Stmt) -> Option<Arc<str>> {
    match &stmt.op {
        Op::Placeholder { target, .. } | Op::GetAttr { target } | Op::Call { target, .. } => Some(target.text.clone()),
        Op::Output { .. } => None,
    }
}

fn known_names<'a>(built: &[(NodeId, &'a ast::Stmt)]) -> NameIndex<'a> {
    NameIndex::new(built.iter().filter_map(|(_, s)| s.name.as_ref()).map(|n| &*n.text))
}

fn undefined_node(name: &str, span: Span, known: &NameIndex<'_>) -> Diagnostic {
    let d = Diagnostic::new(Code::E0101, format!("undefined node `%{name}`")).at(span, "not found in this graph");
    match known.nearest(name) {
        Some(near) => {
            // torch's `return` and slices write node names without `%`.
            let sign = if (span.end - span.start) as usize == name.len() {
                ""
            } else {
                "%"
            };
            d.suggest(span, format!("{sign}{near}"), "there is a node with a similar name")
        }
        None => d.help(format!("define it: `%{name} = …`")),
    }
}

fn op_values(op: &Op) -> Box<dyn Iterator<Item = &ast::Value> + '_> {
    match op {
        Op::Call { args, .. } => Box::new(args.positional.iter().chain(args.keyword.iter().map(|(_, v)| v))),
        Op::Output { value } => Box::new(std::iter::once(value)),
        Op::Placeholder { default, .. } => Box::new(default.iter()),
        Op::GetAttr { .. } => Box::new(std::iter::empty()),
    }
}

/// The names of nodes in a value, in order.
fn node_names(v: &ast::Value, out: &mut Vec<Arc<str>>) {
    match &v.kind {
        ValueKind::Node(n) => out.push(n.clone()),
        ValueKind::List(x) | ValueKind::Tuple(x) => x.iter().for_each(|v| node_names(v, out)),
        ValueKind::Dict(x) => x.iter().for_each(|(_, v)| node_names(v, out)),
        ValueKind::Slice(x) | ValueKind::Range(x) => x.iter().for_each(|v| node_names(v, out)),
        _ => {}
    }
}

fn redefinition_error(name: &ast::Name, first: Option<Span>) -> Diagnostic {
    let d = Diagnostic::new(Code::E0103, format!("`%{}` is defined twice", name.text));
    let d = d.at(name.span, "defined again here");
    let d = match first {
        Some(s) => d.see(s, "first defined here"),
        None => d,
    };
    d.note(format!("torch.fx: Node redefined name {}!", name.text))
        .help(format!(
            "rename it, for example to `%{}_1`, and update its uses",
            name.text
        ))
}
