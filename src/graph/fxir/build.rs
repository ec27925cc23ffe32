//! Builds graphs from a syntax tree: looks up names, and resolves types and values.
//!
//! Errors that a graph cannot represent are reported here: undefined nodes, duplicate names, invalid types. Errors that
//! it can represent (uses before definitions, a missing output, unknown modules) are left to
//! [`lint`](crate::graph::lint). A node with errors is still built, with [`Val::Unknown`] for what could not be
//! resolved, so that one run finds all errors.

use super::constants;
use super::origins::DeclaredOrigins;
use super::statements::Statements;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{
    Attribute, AttributeKind, DeclPlaces, DimRange, Graph, GraphModule, InputSpec, ModuleDecl, NodeId, OpDecl, Opcode,
    OutputSpec, Signature, SizeGuard,
};
use crate::op::{Literal, custom};
use crate::scalar::Compare;
use crate::source::Span;
use crate::syntax::ast::{self, BinaryOp, Dialect, Item, ValueKind};
use crate::syntax::resolve;
use crate::tensor::Tensor;
use crate::types::{Type, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// Builds the graphs of a file. `name` is the name of the module: that of the file, without its extension.
pub fn build(file: &ast::File, name: &str) -> (GraphModule, Diagnostics) {
    let mut b = Builder {
        module: GraphModule {
            name: name.into(),
            printed: file.items.iter().any(is_printed),
            ..GraphModule::default()
        },
        graph_spans: HashMap::new(),
        origins: DeclaredOrigins::default(),
        unnamed: 0,
        out: Diagnostics::new(),
    };
    b.origins = DeclaredOrigins::from_file(file, &mut b.out);
    for item in &file.items {
        b.build_item(item);
    }
    (b.module, b.out)
}

/// Whether torch printed the item.
fn is_printed(item: &Item) -> bool {
    matches!(item, Item::Graph(g) if g.dialect != Dialect::Fxir)
}

struct Builder {
    module: GraphModule,
    graph_spans: HashMap<Arc<str>, Span>,
    origins: DeclaredOrigins,
    /// The number of graphs without a name so far.
    unnamed: usize,
    out: Diagnostics,
}

/// Reports a name that is declared twice in a file.
fn name_taken(kind: &str, name: &ast::Name, first: Option<Span>) -> Diagnostic {
    let d = Diagnostic::new(Code::E0103, format!("{kind} `{}` is declared twice", name.text));
    let d = d.at(name.span, "declared again here");
    match first {
        Some(s) => d.see(s, "first declared here"),
        None => d,
    }
}

impl Builder {
    fn build_item(&mut self, item: &Item) {
        match item {
            Item::Weights(w) => match &self.module.weights {
                None => self.module.weights = Some((w.path.text.to_string(), Some(w.path.span))),
                Some((_, first)) => {
                    let d = Diagnostic::new(Code::E0103, "a second weights file").at(w.span, "second weights file");
                    let d = first.map_or(d.clone(), |s| d.see(s, "first weights file"));
                    self.out.push(d.help("a file can name only one weights file"));
                }
            },
            Item::Module(m) => self.module_decl(m),
            Item::Const(c) => self.build_constant(c),
            Item::Tensor(t) => self.build_tensor(t),
            Item::Dim(d) => self.build_dim(d),
            Item::Guard(g) => self.build_guard(g),
            Item::Pointwise(p) => self.build_pointwise(p),
            Item::Graph(g) => self.build_graph(g),
            Item::Signature(s) => {
                if self.module.exported.replace(build_signature(s)).is_some() {
                    let d = Diagnostic::new(Code::E0103, "a second signature").at(s.span, "second signature");
                    self.out
                        .push(d.help("a file can have only one signature, that of the entry graph"));
                }
            }
            // The rewriter reads rules; frames and scopes have already been read.
            Item::Rewrite(_) | Item::Frame(_) | Item::Scope(_) => {}
        }
    }

    fn module_decl(&mut self, m: &ast::ModuleDecl) {
        if let Some(first) = self.module.modules.get(&m.name.text) {
            self.out.push(name_taken("module", &m.name, first.span));
            return;
        }
        let args = m.args.positional.iter().map(|v| self.build_literal(v)).collect();
        let keyword = m.args.keyword.iter();
        let kwargs = keyword.map(|(k, v)| (k.text.clone(), self.build_literal(v))).collect();
        let decl = ModuleDecl {
            class: m.class.text.clone(),
            args,
            kwargs,
            span: Some(m.span),
            places: Some(Box::new(DeclPlaces {
                class: m.class.span,
                args: m.args.positional.iter().map(|v| v.span).collect(),
                kwargs: m.args.keyword.iter().map(|(k, v)| (k.span, v.span)).collect(),
            })),
        };
        self.module.modules.insert(m.name.text.clone(), decl);
    }

    /// Builds a hyper-parameter. A bare name that is not a dtype is a string, since torch prints
    /// `padding_mode=circular`.
    fn build_literal(&mut self, v: &ast::Value) -> Literal {
        let mut nodes = vec![];
        let value = resolve::value(
            v,
            &mut |n, span| -> Option<Literal> {
                nodes.push((n.to_string(), span));
                None
            },
            &mut self.out,
        );
        for (n, span) in nodes {
            let d =
                Diagnostic::new(Code::E0101, format!("`%{n}` outside a graph")).at(span, "a node cannot be used here");
            self.out.push(d);
        }
        match (&v.kind, value) {
            (ValueKind::Name(n), Val::Int(_)) => Val::Str(n.clone()),
            (_, value) => value,
        }
    }

    fn build_constant(&mut self, c: &ast::ConstDecl) {
        let ty = resolve::ty(&c.ty, &mut self.out);
        let value = match (&ty, &c.value) {
            (Val::Leaf(t), Some(v)) => constants::read_tensor(v, t, c.ty.span, &mut self.out),
            (Val::Leaf(_), None) | (Val::Unknown, _) => None,
            _ => {
                let d = Diagnostic::new(Code::E0112, "a constant must be a tensor").at(c.ty.span, "not a tensor type");
                self.out
                    .push(d.help("write the type of a number as `i64[]` or `f32[]`"));
                None
            }
        };
        self.add_attribute(&c.name, c.span, AttributeKind::Constant, ty, value);
    }

    fn build_tensor(&mut self, t: &ast::TensorDecl) {
        let kind = match t.buffer {
            true => AttributeKind::Buffer,
            false => AttributeKind::Parameter,
        };
        let ty = resolve::ty(&t.ty, &mut self.out);
        self.add_attribute(&t.name, t.span, kind, ty, None);
    }

    fn add_attribute(&mut self, name: &ast::Name, span: Span, kind: AttributeKind, ty: Type, value: Option<Tensor>) {
        if let Some(first) = self.module.attributes.get(&name.text) {
            self.out.push(name_taken("attribute", name, first.span));
            return;
        }
        let attribute = Attribute {
            kind,
            ty: (ty != Val::Unknown).then_some(ty),
            value,
            span: Some(span),
        };
        self.module.attributes.insert(name.text.clone(), attribute);
    }

    fn build_pointwise(&mut self, p: &ast::PointwiseDecl) {
        let name: Arc<str> = p
            .schema
            .text
            .split('(')
            .next()
            .unwrap_or_default()
            .trim()
            .replace("::", ".")
            .into();
        if let Some(first) = self.module.ops.get(&name) {
            let declared = ast::Name::new(name.clone(), p.schema.span);
            self.out.push(name_taken("op", &declared, first.span));
            return;
        }
        match custom::declare(&p.schema.text, &p.expr.text) {
            Ok(op) => {
                let decl = OpDecl {
                    schema: p.schema.text.clone(),
                    expr: p.expr.text.clone(),
                    op,
                    span: Some(p.span),
                };
                self.module.ops.insert(name, decl);
            }
            Err(e) => {
                let mut d = Diagnostic::new(e.code, e.title).at(p.span, "declared here");
                (d.notes, d.help) = (e.notes, e.help);
                self.out.push(d);
            }
        }
    }

    fn build_dim(&mut self, d: &ast::DimDecl) {
        if let Some(first) = self.module.dims.get(&d.name.text) {
            self.out.push(name_taken("size", &d.name, first.span));
            return;
        }
        if d.min < 0 || d.max.is_some_and(|m| m < d.min) {
            let e = Diagnostic::new(
                Code::E0016,
                format!("the range of `{}` contains no valid size", d.name.text),
            );
            self.out.push(e.at(d.span, "the range is empty or starts below 0"));
            return;
        }
        let range = DimRange {
            min: d.min,
            max: d.max,
            span: Some(d.span),
        };
        self.module.dims.insert(d.name.text.clone(), range);
    }

    fn build_guard(&mut self, g: &ast::GuardDecl) {
        let compare = |op| match op {
            BinaryOp::Ne => Compare::Ne,
            BinaryOp::Lt => Compare::Lt,
            BinaryOp::Le => Compare::Le,
            BinaryOp::Gt => Compare::Gt,
            BinaryOp::Ge => Compare::Ge,
            _ => Compare::Eq,
        };
        if let Some((left, op, right)) = resolve::condition(&g.condition, &mut self.out) {
            let compare = compare(op);
            self.module.guards.push(SizeGuard { left, compare, right });
        }
    }

    fn build_graph(&mut self, g: &ast::Graph) {
        let name = match &g.name {
            Some(n) => n.text.clone(),
            None => self.free_graph_name(),
        };
        let place = g.name.as_ref().map_or(g.span, |n| n.span);
        if let Some(&first) = self.graph_spans.get(&name) {
            self.out
                .push(name_taken("graph", &ast::Name::new(name, place), Some(first)));
            return;
        }
        let mut graph = Statements::build(g, &self.origins, &mut self.out);
        graph.signature = g.signature.as_deref().map(build_signature);
        if g.dialect != Dialect::Fxir {
            placeholders_first(&mut graph);
        }
        if let Dialect::Python(Some(class)) = &g.dialect {
            if self.module.graphs.is_empty() {
                self.module.name = class.to_string();
            }
            graph.attribute = (g.name.is_some() && *class != name).then(|| class.clone());
        }
        if let Some(a) = &g.attribute {
            graph.attribute = Some(a.text.clone());
        }
        self.graph_spans.insert(name.clone(), place);
        self.module.graphs.insert(name, graph);
    }

    /// The name of a graph that torch printed, which has none: `main`, then `main_1` and so on.
    fn free_graph_name(&mut self) -> Arc<str> {
        loop {
            let name = match self.unnamed {
                0 => "main".to_string(),
                i => format!("main_{i}"),
            };
            self.unnamed += 1;
            if !self.graph_spans.contains_key(&*name) {
                return name.into();
            }
        }
    }
}

/// Moves placeholders to the front. torch's tracer creates some after its checks of `concrete_args`, but they are
/// parameters wherever they are.
fn placeholders_first(graph: &mut Graph) {
    let is_parameter = |n: NodeId| matches!(graph[n].op(), Opcode::Placeholder | Opcode::GetAttr);
    let Some(first) = graph.iter().find(|&n| !is_parameter(n)) else {
        return;
    };
    for p in graph.placeholders() {
        if graph.is_before(first, p) {
            graph.move_before(p, first);
        }
    }
}

fn build_signature(s: &ast::Signature) -> Signature {
    let mut out = Signature {
        ranges: s.ranges.clone(),
        ..Signature::default()
    };
    for spec in &s.specs {
        let name: Arc<str> = spec.name.as_ref().map_or_else(|| "".into(), |n| n.text.clone());
        let (kind, target) = (spec.kind.text.clone(), spec.target.clone());
        if spec.is_output() {
            out.outputs.push(OutputSpec { name, kind, target });
        } else {
            out.inputs.push(InputSpec {
                name,
                kind,
                target,
                persistent: spec.persistent,
                constant: None,
            });
        }
    }
    out
}
