//! Operators of ATen, and those of `prim` that compute values.

use super::lower::{BoundValue, ScriptLowerer};
use super::tree::Node;
use crate::source::Span;
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{CallKind, Name, Op, Value, ValueKind};
use crate::types::DType;

impl ScriptLowerer<'_> {
    pub(super) fn lower_operation(&mut self, n: &Node) {
        self.lower_operator(n);
        // These ops may return their operand itself; the results of a call may be anything.
        let passes = matches!(
            &*n.op,
            "aten::contiguous" | "aten::to" | "aten::type_as" | "aten::expand_as" | "aten::reshape" | "aten::view"
        ) || n.op.contains("dropout")
            || n.op.ends_with('_');
        for o in n.outputs.iter().filter(|_| passes) {
            if let Some(BoundValue::Value(v, _)) = self.env.get(&o.name)
                && let ValueKind::Node(name) = &v.kind
            {
                self.passing.insert(name.clone());
            }
        }
    }

    fn lower_operator(&mut self, n: &Node) {
        let values: Vec<Value> = n.args.iter().map(|a| self.operand_value(a)).collect();
        let numbers = !n.args.is_empty() && n.args.iter().all(|a| self.is_number(a));
        let Some(op) = n.op.strip_prefix("aten::") else {
            return self.lower_primitive(n, values);
        };
        if numbers && self.on_numbers(n, op, &values) || self.on_lists(n, op, &values) {
            return;
        }
        let known = |v: &Value| matches!(v.kind, ValueKind::None | ValueKind::Bool(_));
        match op {
            "size" | "dim" | "numel" | "stride" => {
                let number = n.outputs.first().is_some_and(|o| o.ty.is_number());
                self.emit_call(n, CallKind::Method, op, values, number);
                self.note_length(n);
            }
            // Whether a value is `None`, or an optional bool is True, is known once the inputs are.
            "__is__" | "__isnot__" if values.iter().any(known) => {
                let path = if op == "__is__" { "operator.eq" } else { "operator.ne" };
                self.emit_call(n, CallKind::Function, path, values, true);
            }
            "tensor" => self.lower_tensor(n, values),
            "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => {
                let values = recurrent_args(values, n.span, self);
                self.emit_call(n, CallKind::Function, &format!("torch.ops.aten.{op}"), values, false);
            }
            "len" => {
                self.emit_call(n, CallKind::Function, "builtins.len", values, true);
                self.note_length(n);
            }
            "ceil" | "floor" | "sqrt" | "trunc" if numbers => {
                self.emit_call(n, CallKind::Function, &format!("math.{op}"), values, true)
            }
            "__range_length" | "__derive_index" if self.lower_range(n, op, &values) => {}
            "abs" if numbers => self.emit_call(n, CallKind::Function, "builtins.abs", values, true),
            "__getitem__" => self.emit_call(n, CallKind::Function, "operator.getitem", values, false),
            _ => self.emit_call(n, CallKind::Function, &format!("torch.ops.aten.{op}"), values, false),
        }
    }

    /// Makes a tensor from a number or a list of numbers. Without a dtype, it has that of the numbers.
    fn lower_tensor(&mut self, n: &Node, values: Vec<Value>) {
        let mut keyword = vec![];
        if let Some(dtype) = values.get(1).filter(|v| !matches!(v.kind, ValueKind::None)) {
            keyword.push((Name::new("dtype", dtype.span), dtype_of(dtype)));
        }
        let data = values.into_iter().take(1).collect();
        self.call_with(n, CallKind::Function, "torch.tensor", (data, keyword), false);
    }

    /// Lowers an operator of another namespace.
    fn lower_primitive(&mut self, n: &Node, mut values: Vec<Value>) {
        match &*n.op {
            "prim::max" | "prim::min" if self.on_lists(n, &n.op["prim::".len()..], &values) => {}
            "prim::max" | "prim::min" => {
                let path = n.op.replace("prim::", "builtins.");
                self.emit_call(n, CallKind::Function, &path, values, true);
            }
            "prim::TupleIndex" => self.emit_call(n, CallKind::Function, "operator.getitem", values, false),
            "prim::dtype" | "prim::device" | "prim::shape" if values.len() == 1 => {
                let name = n.op["prim::".len()..].into();
                values.push(Value::new(ValueKind::Str(name), n.span));
                self.emit_call(n, CallKind::Function, "builtins.getattr", values, false);
            }
            op if op.starts_with("prim::") => {
                self.report_unreadable(n, "this operator cannot be expressed in a torch.fx graph")
            }
            op => {
                let path = format!("torch.ops.{}", op.replace("::", "."));
                self.emit_call(n, CallKind::Function, &path, values, false);
            }
        }
    }
}

/// Converts the number of a dtype to its name.
fn dtype_of(v: &Value) -> Value {
    match v.kind {
        ValueKind::Int(i) => match DType::from_scalar_type(i) {
            Some(d) => Value::new(ValueKind::Name(format!("torch.{}", d.torch_name()).into()), v.span),
            None => v.clone(),
        },
        _ => v.clone(),
    }
}

/// The weights of a recurrent layer, without the number of the layer.
const RECURRENT_WEIGHTS: [&str; 4] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];

/// The arguments of a recurrent layer with its weights listed individually: `weight_ih_l0`, `weight_hh_l0`,
/// `bias_ih_l0` and so on.
fn recurrent_args(mut values: Vec<Value>, span: Span, l: &mut ScriptLowerer<'_>) -> Vec<Value> {
    let int = |v: &Value| match v.kind {
        ValueKind::Int(i) => usize::try_from(i).ok(),
        ValueKind::Bool(b) => Some(usize::from(b)),
        _ => None,
    };
    let [
        _,
        _,
        Value {
            kind: ValueKind::Opaque(path),
            ..
        },
        bias,
        layers,
        _,
        _,
        bidirectional,
        ..,
    ] = &values[..]
    else {
        return values;
    };
    let (Some(bias), Some(layers), Some(bidirectional)) =
        (int(bias), int(layers).filter(|l| *l <= 1024), int(bidirectional))
    else {
        return values;
    };
    let module = path.trim_end_matches("_flat_weights").to_string();
    let mut weights = vec![];
    for layer in 0..layers {
        for end in ["", "_reverse"].iter().take(1 + bidirectional) {
            for kind in RECURRENT_WEIGHTS.iter().take(2 + 2 * bias) {
                weights.push(read_weight(format!("{module}{kind}_l{layer}{end}"), span, l));
            }
        }
    }
    values[2] = Value::new(ValueKind::List(weights), span);
    values
}

/// Adds a node that reads the attribute `path`.
fn read_weight(path: String, span: Span, l: &mut ScriptLowerer<'_>) -> Value {
    let name = l.node_name(&path.replace('.', "_"), "weight");
    let target = Name::new(path, span);
    let named = Some(Name::new(name.clone(), span));
    l.stmts.push(make_stmt(named, None, Op::GetAttr { target }, None, span));
    Value::new(ValueKind::Node(name), span)
}
