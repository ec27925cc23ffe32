//! Lowers a function of generated Python to a graph.

mod assign;
mod flattened;
mod in_place;
mod notes;

use self::in_place::Pending;
use self::notes::{parse_loc, without_colours};
use super::names;
use super::tree::{Def, Expr, ExprKind, Param, Simple, SimpleKind};
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{Body, Called, Loc, Name, Op, Stmt, Type, TypeKind, Value, ValueKind};
use crate::syntax::{parse_type, parse_value, spans};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// What all functions of a text share.
pub(super) struct FunctionContext<'a> {
    /// The file.
    pub file: FileId,
    /// Its text.
    pub text: &'a str,
    /// The comments of the region, in order.
    pub comments: &'a [Range<usize>],
    /// The names of wrapped functions.
    pub wrapped: &'a [String],
}

/// The state of lowering a function to statements.
pub(super) struct FunctionLowerer<'a> {
    text: &'a FunctionContext<'a>,
    pub(super) wrapped: &'a [String],
    /// The graphs of submodules, by their attribute names in this module.
    children: &'a HashMap<Arc<str>, Arc<str>>,
    /// The name of the `self` parameter, if there is one.
    this: Option<Arc<str>>,
    /// The bindings of names.
    env: HashMap<Arc<str>, Value>,
    /// Names that nodes have or will get.
    used: HashSet<Arc<str>>,
    /// Names that nodes have.
    defined: HashSet<Arc<str>>,
    stmts: Vec<Stmt>,
    /// The type annotations without a value.
    annotated: HashMap<Arc<str>, Type>,
    /// An in-place statement that the next statement names.
    pending: Option<Pending>,
    /// Placeholders by parameter name.
    params: HashMap<Arc<str>, usize>,
    comment: usize,
    loc: Option<Loc>,
    broken: Vec<Arc<str>>,
    /// The parameters that the text flattens.
    flattened: Option<Called>,
    /// Whether the text nests the result.
    unflattened: bool,
    errors: Vec<Diagnostic>,
}

/// Lowers a function to a graph. `children` has the graphs of its module's submodules.
pub(super) fn lower(
    text: &FunctionContext<'_>,
    def: &Def,
    children: &HashMap<Arc<str>, Arc<str>>,
    errors: &mut Vec<Diagnostic>,
) -> (Body, Option<Called>) {
    let mut l = FunctionLowerer::new(text, def, children);
    l.reserve(def);
    for (i, p) in def.params.iter().enumerate() {
        l.lower_param(i, p);
    }
    for s in &def.body {
        l.comments_before(s.span.start as usize);
        l.lower_simple(s, def);
    }
    l.settle_pending();
    errors.append(&mut l.errors);
    let end = |offset: u32| Span::new(text.file, offset as usize, offset as usize);
    let body = Body {
        stmts: l.stmts,
        broken: l.broken,
        open: end(def.span.start),
        close: end(def.span.end),
    };
    (body, l.flattened.filter(|_| l.unflattened))
}

impl<'a> FunctionLowerer<'a> {
    fn new(text: &'a FunctionContext<'a>, def: &Def, children: &'a HashMap<Arc<str>, Arc<str>>) -> FunctionLowerer<'a> {
        FunctionLowerer {
            text,
            wrapped: text.wrapped,
            children,
            this: None,
            env: HashMap::new(),
            used: HashSet::new(),
            defined: HashSet::new(),
            stmts: vec![],
            annotated: HashMap::new(),
            pending: None,
            params: HashMap::new(),
            comment: text.comments.partition_point(|c| c.start < def.span.start as usize),
            loc: None,
            broken: vec![],
            flattened: None,
            unflattened: false,
            errors: vec![],
        }
    }
}

impl FunctionLowerer<'_> {
    /// Reserves names in the text, which take precedence over generated names of intermediate values.
    fn reserve(&mut self, def: &Def) {
        for s in &def.body {
            if let SimpleKind::Assign(targets, _, value) = &s.kind
                && !matches!(value.kind, ExprKind::None)
            {
                self.used.extend(targets.iter().filter_map(name_of));
            }
        }
    }

    fn lower_param(&mut self, index: usize, p: &Param) {
        if index == 0 && &*p.name.text == "self" && p.stars.is_empty() {
            self.this = Some(p.name.text.clone());
            return;
        }
        let ty = p.ty.as_ref().and_then(|t| self.lower_annotation(t));
        let default = p.default.as_ref().map(|d| self.lower_value(d));
        let target = Name::new(format!("{}{}", p.stars, p.name.text), p.name.span);
        let op = Op::Placeholder { target, default };
        let name = Name::new(p.name.text.clone(), p.name.span);
        self.params.insert(p.name.text.clone(), self.stmts.len());
        self.bind_node(&p.name.text, p.name.text.clone(), p.name.span);
        self.used.insert(p.name.text.clone());
        self.defined.insert(p.name.text.clone());
        self.stmts.push(make_stmt(Some(name), ty, op, None, p.name.span));
    }

    fn lower_simple(&mut self, s: &Simple, def: &Def) {
        if let SimpleKind::Assign(targets, None, value) = &s.kind
            && let [target] = &targets[..]
            && let Some(name) = name_of(target)
            && self.names_pending(&name, target.span, value)
        {
            return;
        }
        self.settle_pending();
        match &s.kind {
            SimpleKind::Assign(targets, ty, value) => self.lower_assign(s, targets, ty.as_ref(), value),
            SimpleKind::Annotate(target, ty) => {
                if let (Some(name), Some(ty)) = (name_of(target), self.lower_annotation(ty)) {
                    self.annotated.insert(name, ty);
                }
            }
            SimpleKind::InPlace(op, target, value) => self.in_place(s, op, target, value),
            SimpleKind::Return(value) => self.lower_return(s, value.as_ref(), def),
            SimpleKind::Expr(e) => {
                if let Some(op) = self.lower_operation(e) {
                    self.emit(op, s.span);
                }
            }
            SimpleKind::Nothing => {}
            SimpleKind::Broken => self.note_broken(s.span),
        }
    }

    /// The name of a new node that is called `wish` in the text. The first such node gets exactly this name.
    fn free_for(&mut self, wish: &Arc<str>) -> Arc<str> {
        if self.defined.insert(wish.clone()) {
            self.used.insert(wish.clone());
            return wish.clone();
        }
        self.fresh_name(wish)
    }

    fn fresh_name(&mut self, wish: &str) -> Arc<str> {
        let mut name: Arc<str> = wish.into();
        let mut i = 0;
        while self.used.contains(&name) {
            i += 1;
            name = format!("{wish}_{i}").into();
        }
        self.used.insert(name.clone());
        self.defined.insert(name.clone());
        name
    }

    /// Adds a node that has no name in the text, and returns its generated name.
    pub(super) fn emit(&mut self, op: Op, span: Span) -> Arc<str> {
        let wish = match &op {
            Op::Call { target, .. } | Op::GetAttr { target } | Op::Placeholder { target, .. } => {
                let path: &str = &target.text;
                let path = path.strip_suffix(".default").unwrap_or(path);
                let last = path.rsplit('.').next().unwrap_or(path);
                let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
                last.chars().map(legal).collect::<String>()
            }
            Op::Output { .. } => "output".into(),
        };
        let wish = match wish.chars().next() {
            Some(c) if !c.is_ascii_digit() => wish,
            _ => format!("_{wish}"),
        };
        let name = self.fresh_name(&wish);
        let loc = self.loc.clone();
        self.stmts
            .push(make_stmt(Some(Name::new(name.clone(), span)), None, op, loc, span));
        name
    }

    /// The value bound to a name; `None` if the function does not bind it.
    pub(super) fn lookup_name(&self, name: &str) -> Option<&Value> {
        self.env.get(name)
    }

    /// Whether the name refers to the module.
    pub(super) fn is_self(&self, name: &str) -> bool {
        self.this.as_deref() == Some(name)
    }

    /// The graph that `self.true_graph_0` refers to.
    pub(super) fn child_graph(&self, e: &Expr) -> Option<Arc<str>> {
        if self.children.is_empty() {
            return None;
        }
        self.children.get(&*self.self_path(e)?).cloned()
    }

    /// The text of a span.
    pub(super) fn source_text(&self, span: Span) -> &str {
        &self.text.text[span.range()]
    }

    fn bind_node(&mut self, name: &str, node: Arc<str>, span: Span) {
        self.env.insert(name.into(), Value::new(ValueKind::Node(node), span));
    }

    /// Reports an unreadable construct and returns a value to use instead.
    pub(super) fn report_unreadable(&mut self, span: Span, reason: &str) -> ValueKind {
        let d = Diagnostic::new(Code::E0013, "invalid syntax for code printed by torch").at(span, reason);
        self.errors.push(d.help("paste torch's output unmodified"));
        ValueKind::None
    }

    /// Treats the name that an unreadable line defines as defined.
    fn note_broken(&mut self, span: Span) {
        let text = self.source_text(span).trim_start();
        let end = text
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(text.len());
        let name: Arc<str> = text[..end].into();
        if !name.is_empty() {
            self.bind_node(&name.clone(), name.clone(), span);
            self.broken.push(name);
        }
    }

    /// Processes the comments up to a statement: `# File: …` is the origin of the statements after it.
    fn comments_before(&mut self, offset: usize) {
        while let Some(c) = self.text.comments.get(self.comment).filter(|c| c.start < offset) {
            let text = &self.text.text[c.clone()];
            if text.contains("No stacktrace found") {
                self.loc = None;
            } else if let Some(loc) = parse_loc(text, Span::new(self.text.file, c.start, c.end)) {
                self.loc = Some(loc);
            }
            self.comment += 1;
        }
    }

    /// The type for an annotation: torch's own `"f32[4, 4]"` and `"Sym(s77)"`, or a Python type.
    fn lower_annotation(&mut self, e: &Expr) -> Option<Type> {
        let ExprKind::Str(s) = &e.kind else {
            let kind = TypeKind::python(names::annotation_text(e).into());
            return Some(Type { kind, span: e.span });
        };
        let text = without_colours(s);
        if let Some(size) = text.strip_prefix("Sym(").and_then(|t| t.strip_suffix(')')) {
            let (mut value, findings) = parse_value(self.text.file, size);
            value
                .iter_mut()
                .for_each(|v| spans::visit_value(v, &mut |s| *s = e.span));
            let kind = value
                .filter(|_| !findings.has_errors())
                .map(|v| TypeKind::Size(Box::new(v)));
            return Some(Type {
                kind: kind.unwrap_or(TypeKind::Word("int".into())),
                span: e.span,
            });
        }
        let shape = &text[..text.find(']')? + 1];
        let (ty, findings) = parse_type(self.text.file, shape);
        let mut ty = ty.filter(|_| !findings.has_errors())?;
        spans::visit_type(&mut ty, &mut |s| *s = e.span);
        Some(ty)
    }
}

fn name_of(e: &Expr) -> Option<Arc<str>> {
    match &e.kind {
        ExprKind::Name(n) => Some(n.clone()),
        _ => None,
    }
}
