//! `prim::Constant` and `prim::GetAttr`: literals, functions, and tensors whose values are not in the text.

use super::literal::{annotated_value, parse_literal, tensor_type};
use super::lower::{BoundValue, ScriptLowerer};
use super::objects::Items;
use super::tree::{Attr, Node, Typed};
use crate::syntax::ast::{Name, Op, Type, TypeKind, Value, ValueKind};
use std::sync::Arc;

/// The placeholder for a tensor in a list.
const TENSOR: &str = "<Tensor>";

impl ScriptLowerer<'_> {
    pub(super) fn lower_constant(&mut self, n: &Node) {
        let Some(out) = n.outputs.first() else { return };
        let Some(value) = n.attrs.first() else {
            self.bind(out, ValueKind::None, false);
            return;
        };
        if &*value.name == "name" {
            // A function, which `prim::CallFunction` calls.
            let path = format!("torch.nn.functional.{}", self.string_attr(value));
            self.bind(out, ValueKind::Opaque(path.into()), false);
            return;
        }
        match parse_literal(&value.text, &out.ty, value.span, self.errors) {
            Some(kind) => self.bind(out, kind, true),
            None if self.emit_tensor_list(n, out, value) => {}
            // The text does not have the tensor's values, so it becomes an attribute with the name of the constant.
            None => self.emit_attribute(n, out, attribute_path(out)),
        }
    }

    pub(super) fn get_attr(&mut self, n: &Node) {
        let (Some(out), Some(base), Some(attr)) = (n.outputs.first(), n.args.first(), n.attrs.first()) else {
            self.report_unreadable(n, "`prim::GetAttr` expects a module");
            return;
        };
        let name = self.string_attr(attr);
        let path: Arc<str> = match self.env.get(&base.name) {
            Some(BoundValue::Module(p)) if p.is_empty() => name.as_str().into(),
            Some(BoundValue::Module(p)) => format!("{p}.{name}").into(),
            _ => return self.report_unreadable(n, "attributes are only supported on modules"),
        };
        if out.ty.is_module() {
            self.env.insert(out.name.clone(), BoundValue::Module(path));
        } else if name == "_flat_weights" {
            // The weights of a recurrent layer. The operator determines how many there are.
            self.bind(out, ValueKind::Opaque(path), false);
        } else if name == "training" {
            self.bind(out, ValueKind::Bool(false), true);
        } else if &*out.ty.name == "Dict" && self.memos.contains(name.as_str()) {
            let known = self.memo_dicts.get(&path).copied();
            let id = known.unwrap_or_else(|| self.objects.add(Items::Dict(vec![])));
            self.memo_dicts.insert(path, id);
            self.env.insert(out.name.clone(), BoundValue::Object(id));
        } else if out.ty.is_number() || matches!(&*out.ty.name, "str" | "List" | "Dict" | "Optional" | "") {
            let reason =
                format!("the text does not contain the value of `{path}`; freeze the module with `torch.jit.freeze`");
            self.report_unreadable(n, &reason);
        } else {
            self.emit_attribute(n, out, path);
        }
    }

    fn emit_attribute(&mut self, n: &Node, out: &Typed, path: Arc<str>) {
        let op = Op::GetAttr {
            target: Name::new(path.clone(), out.span),
        };
        let wish = path.replace('.', "_");
        let known = match out.ty.optional {
            true => Some(Type {
                kind: TypeKind::OptionalTensor,
                span: out.span,
            }),
            false => tensor_type(&out.ty, out.span),
        };
        let name = self.push_stmt(op, &wish, "attribute", known, n);
        self.bind(out, ValueKind::Node(name), false);
    }

    /// Emits a list of tensors: the attributes `NAME.0`, `NAME.1`, …. Returns false if the constant is not such a list.
    fn emit_tensor_list(&mut self, n: &Node, out: &Typed, value: &Attr) -> bool {
        let text = annotated_value(&value.text).unwrap_or(&value.text).trim();
        let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) else {
            return false;
        };
        let items: Vec<&str> = inner.split(',').map(str::trim).collect();
        if !items.iter().all(|i| matches!(*i, TENSOR | "None")) {
            return false;
        }
        let path = attribute_path(out);
        let mut values = vec![];
        for (i, item) in items.into_iter().enumerate() {
            if item == TENSOR {
                self.emit_attribute(n, out, format!("{path}.{i}").into());
                values.push(self.operand_value(out));
            } else {
                values.push(Value::new(ValueKind::None, value.span));
            }
        }
        self.bind(out, ValueKind::List(values), false);
        true
    }
}

/// The path of the attribute for a constant.
fn attribute_path(out: &Typed) -> Arc<str> {
    let path = out.name.strip_prefix("self.").unwrap_or(&out.name);
    match path.starts_with(|c: char| c.is_ascii_digit()) && !path.contains('.') {
        true => format!("constant_{path}").into(),
        false => path.into(),
    }
}
