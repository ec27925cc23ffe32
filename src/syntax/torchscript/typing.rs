//! Infers types that the text of a script omits.
//!
//! torch prints the type of every value, but hand-written scripts omit them. As far as types matter here, an operator's
//! name and operands determine its results: modules, numbers, lists, and otherwise tensors.

use super::tree::{Node, Script, Ty, Typed};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Completes a script: adds types to values without one, inputs to statements without a header, and the last values as
/// results to a graph without a return.
pub(super) fn complete(script: &mut Script) {
    if script.inputs.is_none() {
        script.inputs = Some(free_values(&script.nodes));
    }
    if script.results.is_none() {
        let last = script.nodes.last().map(|n| n.outputs.clone()).unwrap_or_default();
        script.results = Some(last);
    }
    let mut t = Typing::default();
    t.collect_uses(&script.nodes);
    for (i, input) in script.inputs.iter_mut().flatten().enumerate() {
        if input.ty.is_unannotated() {
            input.ty = t.infer_input(i, &input.name);
        }
        t.types.insert(input.name.clone(), input.ty.clone());
    }
    t.infer_nodes(&mut script.nodes);
}

/// The values that nodes use but none defines, in order.
fn free_values(nodes: &[Node]) -> Vec<Typed> {
    fn visit_nodes(nodes: &[Node], defined: &mut HashSet<Arc<str>>, out: &mut Vec<Typed>) {
        for n in nodes {
            let mut used = |v: &Typed, defined: &mut HashSet<Arc<str>>| {
                if defined.insert(v.name.clone()) {
                    out.push(Typed {
                        ty: Ty::unannotated(),
                        ..v.clone()
                    });
                }
            };
            n.args.iter().for_each(|a| used(a, defined));
            for b in &n.blocks {
                defined.extend(b.inputs.iter().map(|i| i.name.clone()));
                visit_nodes(&b.nodes, defined, out);
            }
            defined.extend(n.outputs.iter().map(|o| o.name.clone()));
        }
    }
    let mut out = vec![];
    visit_nodes(nodes, &mut HashSet::new(), &mut out);
    out
}

#[derive(Default)]
struct Typing {
    types: HashMap<Arc<str>, Ty>,
    used: HashSet<Arc<str>>,
    /// Values with attribute reads or method calls.
    modules: HashSet<Arc<str>>,
    /// Values that control branches and loops.
    conditions: HashSet<Arc<str>>,
}

impl Typing {
    fn collect_uses(&mut self, nodes: &[Node]) {
        for n in nodes {
            self.used.extend(n.args.iter().map(|a| a.name.clone()));
            if matches!(&*n.op, "prim::GetAttr" | "prim::CallMethod") {
                self.modules.extend(n.args.first().map(|a| a.name.clone()));
            }
            let condition = match &*n.op {
                "prim::If" => n.args.first(),
                "prim::Loop" => n.args.get(1),
                _ => None,
            };
            self.conditions.extend(condition.map(|a| a.name.clone()));
            for b in &n.blocks {
                if &*n.op == "prim::Loop" {
                    self.conditions.extend(b.results.first().map(|r| r.name.clone()));
                }
                self.collect_uses(&b.nodes);
            }
        }
    }

    /// The first parameter is the module if it is called `self` and is not an operand of any computation.
    fn infer_input(&self, index: usize, name: &Arc<str>) -> Ty {
        let is_self = &**name == "self" || name.starts_with("self.");
        let module = self.modules.contains(name) || index == 0 && is_self && !self.used.contains(name);
        Ty::named(if module { "__torch__.Module" } else { "Tensor" })
    }

    fn infer_nodes(&mut self, nodes: &mut [Node]) {
        for n in nodes {
            let carried: Vec<Ty> = n.args.iter().skip(2).map(|a| self.type_of(a)).collect();
            for b in &mut n.blocks {
                for (i, input) in b.inputs.iter_mut().enumerate() {
                    let ty = match i.checked_sub(1) {
                        None => Ty::named("int"),
                        Some(i) => carried.get(i).cloned().unwrap_or_else(|| Ty::named("Tensor")),
                    };
                    self.define(input, ty);
                }
                self.infer_nodes(&mut b.nodes);
            }
            let types = self.infer_results(n, &carried);
            for (i, o) in n.outputs.iter_mut().enumerate() {
                let ty = types.get(i).or(types.last()).cloned();
                self.define(o, ty.unwrap_or_else(|| Ty::named("Tensor")));
            }
        }
    }

    fn define(&mut self, v: &mut Typed, ty: Ty) {
        if v.ty.is_unannotated() {
            let module = self.modules.contains(&v.name);
            // Constant bools are printed as 0 or 1.
            let condition = self.conditions.contains(&v.name) && ty.is_number();
            v.ty = match (module, condition) {
                (true, _) => Ty::named("__torch__.Module"),
                (false, true) => Ty::named("bool"),
                (false, false) => ty,
            };
        }
        self.types.insert(v.name.clone(), v.ty.clone());
    }

    fn type_of(&self, v: &Typed) -> Ty {
        self.types.get(&v.name).cloned().unwrap_or_else(|| Ty::named("Tensor"))
    }

    /// The types of a node's results. The last type also applies to all further results.
    fn infer_results(&self, n: &Node, carried: &[Ty]) -> Vec<Ty> {
        match &*n.op {
            "prim::Loop" => return carried.to_vec(),
            "prim::If" => {
                let results = n.blocks.first().map(|b| &b.results[..]).unwrap_or_default();
                return results.iter().map(|r| self.type_of(r)).collect();
            }
            _ => {}
        }
        let types: Vec<Ty> = n.args.iter().map(|a| self.type_of(a)).collect();
        vec![Ty::named(result_type_name(n, &types))]
    }
}

fn result_type_name(n: &Node, types: &[Ty]) -> &'static str {
    let float = types.iter().any(|t| &*t.name == "float");
    let numbers = !types.is_empty() && types.iter().all(Ty::is_number);
    match (&*n.op, types.len()) {
        ("prim::Constant", _) => constant_type_name(n.attrs.first().map(|a| &*a.text)),
        ("prim::ListConstruct" | "prim::DictConstruct", _) | ("aten::size" | "aten::stride", 1) => "List",
        ("prim::TupleConstruct", _) => "",
        ("aten::size" | "aten::stride", _) | ("aten::dim" | "aten::numel" | "aten::len" | "aten::Int", _) => "int",
        ("aten::Float", _) => "float",
        ("aten::Bool" | "aten::__is__" | "aten::__isnot__", _) => "bool",
        (op, _) if numbers => match op.strip_prefix("aten::").unwrap_or(op) {
            "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "__and__" | "__or__" | "__not__" => "bool",
            "div" | "sqrt" => "float",
            "ceil" | "floor" => "int",
            "add" | "sub" | "mul" | "floordiv" | "floor_divide" | "remainder" | "pow" | "neg" | "abs" if float => {
                "float"
            }
            "add" | "sub" | "mul" | "floordiv" | "floor_divide" | "remainder" | "pow" | "neg" | "abs" => "int",
            _ => "Tensor",
        },
        _ => "Tensor",
    }
}

/// The type of a constant, derived from its text.
fn constant_type_name(text: Option<&str>) -> &'static str {
    let Some(text) = text.map(str::trim) else {
        return "NoneType";
    };
    match text {
        "None" => "NoneType",
        "True" | "False" | "true" | "false" => "bool",
        _ if text.starts_with('"') => "str",
        _ if text.starts_with('[') => "List",
        _ if text.parse::<i64>().is_ok() => "int",
        _ if text.parse::<f64>().is_ok() => "float",
        _ => "Tensor",
    }
}
