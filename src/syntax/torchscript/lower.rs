//! Lowers TorchScript graphs to statements.

use super::literal::{parse_loc, tensor_type};
use super::memos::find_memos;
use super::objects::Objects;
use super::rows::RowLoop;
use super::tree::{Attr, Node, Script, Ty, Typed};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{Args, Body, CallKind, Dialect, Graph, Name, Op, Stmt, Type, Value, ValueKind};
use crate::syntax::module_repr::Sequences;
use crate::syntax::token::unescape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The binding of a name.
#[derive(Clone)]
pub(super) enum BoundValue {
    /// A value of the graph, and whether it is a Python number.
    Value(Value, bool),
    /// The module at this path; the path of the root is empty.
    Module(Arc<str>),
    /// A list or dict that the script created.
    Object(usize),
}

/// The state of lowering a script to graphs. Control flow that the text determines is evaluated here: branches on
/// constants, loops with a known trip count, lists that grow. The rest becomes calls of graphs (`blocks`).
pub(super) struct ScriptLowerer<'a> {
    pub env: HashMap<Arc<str>, BoundValue>,
    /// The types of values, as far as the text has them.
    pub types: HashMap<Arc<str>, Ty>,
    /// Lists and dicts.
    pub objects: Objects,
    /// The attributes that are memos, and the dicts that represent those that were read, by path.
    pub memos: HashSet<Arc<str>>,
    pub memo_dicts: HashMap<Arc<str>, usize>,
    /// For the node of each bool, the tensor that it was converted from.
    pub truths: HashMap<Arc<str>, Value>,
    /// For the node of each number that is the row count of a tensor, that tensor.
    pub lengths: HashMap<Arc<str>, Arc<str>>,
    /// Nodes that may be `None` at run time.
    pub maybe_none: HashSet<Arc<str>>,
    /// Nodes that may return one of their operands.
    pub passing: HashSet<Arc<str>>,
    /// Whether gradients are taken to be enabled. Modules then use ops that all versions of torch have, with the same
    /// result.
    pub grad: bool,
    /// The current loop, if it is over the rows of tensors.
    pub rows: Option<RowLoop>,
    used: HashSet<Arc<str>>,
    /// The last number used to make each name unique.
    counts: HashMap<String, usize>,
    pub stmts: Vec<Stmt>,
    pub broken: Vec<Arc<str>>,
    /// The graphs that the script's blocks become.
    pub graphs: Vec<Graph>,
    /// Whether the script has branches or loops.
    pub has_blocks: bool,
    /// The number of nodes lowered so far, counting each iteration of unrolled loops.
    pub work: usize,
    /// The position of the script in the text. Its graphs are named after it.
    pub number: usize,
    /// The modules called in sequence by each module that does so, by path.
    pub sequences: &'a Sequences,
    pub errors: &'a mut Vec<Diagnostic>,
}

/// Lowers a script to graphs: its own, then those of its blocks, whose names end in `number`. `sequences` has the
/// modules that call their submodules in sequence, from the text before the script.
pub(super) fn lower(script: &Script, number: usize, sequences: &Sequences, errors: &mut Vec<Diagnostic>) -> Vec<Graph> {
    let mut l = ScriptLowerer::new(script, number, sequences, errors);
    for i in script.inputs.iter().flatten() {
        l.lower_input(i);
    }
    for n in &script.nodes {
        l.lower_node(n);
    }
    let mut results: Vec<Value> = script.results.iter().flatten().map(|r| l.operand_value(r)).collect();
    let value = match results.len() {
        1 => results.remove(0),
        _ => Value::new(ValueKind::Tuple(results), script.span),
    };
    l.stmts
        .push(make_stmt(None, None, Op::Output { value }, None, script.span));
    let mut graph = graph_of(None, std::mem::take(&mut l.stmts), script.span);
    graph.body.broken = l.broken;
    let mut graphs = vec![graph];
    graphs.append(&mut l.graphs);
    graphs
}

/// Whether a node, or one of its blocks, calls a whole transformer layer, which torch does when gradients are disabled.
fn calls_fused_layer(n: &Node) -> bool {
    matches!(
        &*n.op,
        "aten::_native_multi_head_attention" | "aten::_transformer_encoder_layer_fwd"
    ) || n.blocks.iter().flat_map(|b| &b.nodes).any(calls_fused_layer)
}

/// A graph of statements, with the span `span`.
pub(super) fn graph_of(name: Option<Name>, stmts: Vec<Stmt>, span: Span) -> Graph {
    let end = |offset: u32| Span::new(span.file, offset as usize, offset as usize);
    Graph {
        name,
        attribute: None,
        updates: vec![],
        called: None,
        body: Body {
            stmts,
            broken: vec![],
            open: end(span.start),
            close: end(span.end),
        },
        dialect: Dialect::Script,
        signature: None,
        span,
    }
}

impl<'a> ScriptLowerer<'a> {
    fn new(
        script: &Script,
        number: usize,
        sequences: &'a Sequences,
        errors: &'a mut Vec<Diagnostic>,
    ) -> ScriptLowerer<'a> {
        ScriptLowerer {
            env: HashMap::new(),
            types: HashMap::new(),
            objects: Objects::default(),
            memos: find_memos(&script.nodes),
            memo_dicts: HashMap::new(),
            truths: HashMap::new(),
            lengths: HashMap::new(),
            rows: None,
            maybe_none: HashSet::new(),
            passing: HashSet::new(),
            grad: script.nodes.iter().any(calls_fused_layer),
            used: HashSet::new(),
            counts: HashMap::new(),
            stmts: vec![],
            broken: vec![],
            graphs: vec![],
            has_blocks: script.nodes.iter().any(|n| !n.blocks.is_empty()),
            work: 0,
            number,
            sequences,
            errors,
        }
    }
}

impl ScriptLowerer<'_> {
    fn lower_input(&mut self, i: &Typed) {
        if i.ty.is_module() {
            self.env.insert(i.name.clone(), BoundValue::Module("".into()));
            return;
        }
        let name = self.node_name(&i.name, "input");
        let target = Name::new(name.clone(), i.span);
        let op = Op::Placeholder {
            target: target.clone(),
            default: None,
        };
        self.stmts
            .push(make_stmt(Some(target), tensor_type(&i.ty, i.span), op, None, i.span));
        self.types.insert(i.name.clone(), i.ty.clone());
        if i.ty.may_be_none() {
            self.maybe_none.insert(name.clone());
        }
        self.bind(i, ValueKind::Node(name), i.ty.is_number());
    }

    /// Lowers one node with its blocks.
    pub(super) fn lower_node(&mut self, n: &Node) {
        self.work += 1;
        for o in &n.outputs {
            self.types.insert(o.name.clone(), o.ty.clone());
        }
        if self.lower_row(n) || self.on_object(n) || self.bind_known(n) {
            return;
        }
        match &*n.op {
            "prim::If" => self.lower_if(n),
            "prim::Loop" => self.lower_loop(n),
            "prim::RaiseException" => self.lower_raise(n),
            "prim::Constant" => self.lower_constant(n),
            "prim::GetAttr" => self.get_attr(n),
            "prim::CallMethod" | "prim::CallFunction" => self.lower_call(n),
            "prim::ListConstruct" | "prim::DictConstruct" => self.construct_object(n),
            "prim::TupleConstruct" => self.lower_construct(n, ValueKind::Tuple),
            // Printing and warnings do not affect the result.
            "prim::Print" | "aten::warn" => {}
            "prim::Uninitialized" => self.bind_all(n, ValueKind::None, false),
            "prim::ListUnpack" | "prim::TupleUnpack" => self.lower_unpack(n),
            "prim::unchecked_cast" | "prim::unchecked_unwrap_optional" | "aten::_unwrap_optional" => {
                self.lower_alias(n)
            }
            "prim::NumToTensor" | "aten::scalar_tensor" if self.is_constant(n) => self.lower_alias(n),
            "prim::NumToTensor" if n.args.first().is_some_and(|a| self.is_number(a)) => self.lower_alias(n),
            "aten::Int"
            | "aten::Float"
            | "aten::Bool"
            | "aten::ScalarImplicit"
            | "aten::IntImplicit"
            | "aten::FloatImplicit"
            | "aten::item" => self.lower_number(n),
            _ => self.lower_operation(n),
        }
    }

    /// Binds a value to another name.
    pub(super) fn lower_alias(&mut self, n: &Node) {
        let (Some(out), Some(from)) = (n.outputs.first(), n.args.first()) else {
            return self.report_unreadable(n, "an operand is missing");
        };
        if let Some(bound) = self.env.get(&from.name).cloned() {
            self.env.insert(out.name.clone(), bound);
        }
        if let Some(known) = self.types.get(&from.name).filter(|_| !out.ty.shaped).cloned() {
            self.types.insert(out.name.clone(), known);
        }
    }

    fn is_constant(&self, n: &Node) -> bool {
        let literal = |v: &Typed| match self.env.get(&v.name) {
            Some(BoundValue::Value(v, _)) => !matches!(v.kind, ValueKind::Node(_)),
            _ => false,
        };
        n.args.first().is_some_and(literal)
    }

    fn lower_construct(&mut self, n: &Node, kind: fn(Vec<Value>) -> ValueKind) {
        let values = n.args.iter().map(|a| self.operand_value(a)).collect();
        self.bind_all(n, kind(values), false);
    }

    fn lower_unpack(&mut self, n: &Node) {
        let Some(from) = n.args.first().map(|a| self.operand_value(a)) else {
            return self.report_unreadable(n, "an operand is missing");
        };
        match from.kind {
            ValueKind::List(v) | ValueKind::Tuple(v) if v.len() == n.outputs.len() => {
                for (o, v) in n.outputs.iter().zip(v) {
                    self.bind(o, v.kind, o.ty.is_number());
                }
            }
            _ => self.emit_items(n, &n.outputs.iter().collect::<Vec<_>>(), from),
        }
    }

    /// Emits each of `outputs`, the results of `n`, as an item of `from`.
    pub(super) fn emit_items(&mut self, n: &Node, outputs: &[&Typed], from: Value) {
        for (i, o) in outputs.iter().enumerate() {
            let index = Value::new(ValueKind::Int(i as i64), o.span);
            let op = function_call("operator.getitem", vec![from.clone(), index], o.span);
            let name = self.push_stmt(op, &o.name, "getitem", tensor_type(&o.ty, o.span), n);
            self.bind(o, ValueKind::Node(name), o.ty.is_number());
        }
    }

    /// Emits a call with the node's results.
    pub(super) fn emit_call(&mut self, n: &Node, kind: CallKind, target: &str, positional: Vec<Value>, number: bool) {
        self.call_with(n, kind, target, (positional, vec![]), number);
    }

    /// [`call`](ScriptLowerer::emit_call) with keyword arguments after the positional ones.
    pub(super) fn call_with(
        &mut self,
        n: &Node,
        kind: CallKind,
        target: &str,
        (positional, keyword): (Vec<Value>, Vec<(Name, Value)>),
        number: bool,
    ) {
        let op = Op::Call {
            kind,
            target: Name::new(target, n.span),
            args: Args { positional, keyword },
        };
        let short = target
            .rsplit('.')
            .find(|p| !p.starts_with(|c: char| c.is_ascii_digit()))
            .unwrap_or("call");
        match &n.outputs[..] {
            [single] => {
                // The type of a tensor that represents a Python number does not apply to the number.
                let known = tensor_type(&single.ty, single.span).filter(|_| !number);
                let name = self.push_stmt(op, &single.name, short, known, n);
                self.bind(single, ValueKind::Node(name), number || single.ty.is_number());
            }
            _ => {
                let name = self.push_stmt(op, "", short, None, n);
                let outputs: Vec<&Typed> = n.outputs.iter().collect();
                self.emit_items(n, &outputs, Value::new(ValueKind::Node(name), n.span));
            }
        }
    }

    /// Adds a statement called `wish`, or named after `short` if `wish` is only a number. Returns the name.
    pub(super) fn push_stmt(&mut self, op: Op, wish: &str, short: &str, ty: Option<Type>, n: &Node) -> Arc<str> {
        let name = self.node_name(wish, short);
        let loc = n.place.as_deref().and_then(|p| parse_loc(p, n.span));
        let named = Some(Name::new(name.clone(), n.span));
        self.stmts.push(make_stmt(named, ty, op, loc, n.span));
        name
    }

    pub(super) fn node_name(&mut self, wish: &str, short: &str) -> Arc<str> {
        let wish = if wish.bytes().all(|b| b.is_ascii_digit()) {
            short
        } else {
            wish
        };
        let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut base: String = wish.chars().map(legal).collect();
        if base.starts_with(|c: char| c.is_ascii_digit()) {
            base.insert(0, '_');
        }
        let mut name: Arc<str> = base.as_str().into();
        while !self.used.insert(name.clone()) {
            let count = self.counts.entry(base.clone()).or_default();
            *count += 1;
            name = format!("{base}_{count}").into();
        }
        name
    }

    pub(super) fn bind(&mut self, out: &Typed, kind: ValueKind, number: bool) {
        let bound = BoundValue::Value(Value::new(kind, out.span), number);
        self.env.insert(out.name.clone(), bound);
    }

    pub(super) fn bind_all(&mut self, n: &Node, kind: ValueKind, number: bool) {
        for o in &n.outputs {
            self.bind(o, kind.clone(), number);
        }
    }

    pub(super) fn operand_value(&mut self, v: &Typed) -> Value {
        let kind = match self.env.get(&v.name) {
            Some(BoundValue::Value(value, _)) => value.kind.clone(),
            Some(BoundValue::Object(id)) => self.objects.value(*id),
            Some(BoundValue::Module(_)) => {
                let d = Diagnostic::new(Code::E0013, "a module cannot be used as a value");
                self.errors
                    .push(d.at(v.span, "this is a module").help("print `inlined_graph`"));
                ValueKind::None
            }
            None => ValueKind::Node(v.name.clone()),
        };
        Value::new(kind, v.span)
    }

    pub(super) fn is_number(&self, v: &Typed) -> bool {
        matches!(self.env.get(&v.name), Some(BoundValue::Value(_, true)))
    }

    /// The text of a string attribute.
    pub(super) fn string_attr(&mut self, attr: &Attr) -> String {
        let body = attr.text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        let body = body.unwrap_or(&attr.text);
        unescape(body, attr.span.file, attr.span.start as usize, self.errors)
    }

    pub(super) fn report_unreadable(&mut self, n: &Node, reason: &str) {
        let d = Diagnostic::new(Code::E0013, format!("`{}` is not supported", n.op));
        self.errors.push(d.at(n.span, reason));
        for o in &n.outputs {
            self.bind(o, ValueKind::None, false);
        }
    }
}

/// Makes a call of a function.
pub(super) fn function_call(target: &str, positional: Vec<Value>, span: Span) -> Op {
    Op::Call {
        kind: CallKind::Function,
        target: Name::new(target, span),
        args: Args {
            positional,
            keyword: vec![],
        },
    }
}
