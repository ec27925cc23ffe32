//! Inputs that are made up: their types, and their elements.

use super::bind::{Binder, Value};
use super::fill::{Fill, filled};
use crate::diag::{Code, Diagnostic};
use crate::graph::NodeId;
use crate::tensor::{byte_len, is_available};
use crate::types::{Dim, TensorType, Val};

impl Binder<'_> {
    /// A generated tensor.
    pub(super) fn make(&mut self, n: NodeId, fill: Fill, given: Option<&TensorType>) -> Option<Value> {
        let graph = self.graph;
        let node = &graph[n];
        let name = node.target();
        let declared = node.meta.ty.as_ref().and_then(|t| t.as_leaf());
        let Some(ty) = given.or(declared) else {
            let title = format!("the type of input `{name}` is not known, so it cannot be made");
            let d = Diagnostic::new(Code::E0304, title)
                .at_opt(node.meta.span, "it has no type")
                .help(format!("write its type: `{name}:f32[2, 3]=…`"));
            self.out.push(d);
            return None;
        };
        let shape = self.sizes(n, ty)?;
        if !ty.dtype.is_computed() || !byte_len(ty.dtype, &shape).is_some_and(is_available) {
            let title = format!("input `{name}` cannot be made: {}{shape:?}", ty.dtype);
            self.out
                .push(Diagnostic::new(Code::E0504, title).at_opt(node.meta.span, "declared here"));
            return None;
        }
        let t = filled(ty.dtype, &shape, fill);
        self.fit(n, Val::Leaf(t), "the command line")
    }

    fn sizes(&mut self, n: NodeId, ty: &TensorType) -> Option<Vec<usize>> {
        let node = &self.graph[n];
        let dims = &self.dims;
        let eval = |d: &Dim| d.eval(&|v| dims.get(v).copied()).and_then(|x| usize::try_from(x).ok());
        let shape = ty.shape.as_ref();
        let sizes: Option<Vec<usize>> = shape.and_then(|s| s.iter().map(eval).collect());
        if sizes.is_none() {
            let mut unbound = vec![];
            shape.into_iter().flatten().for_each(|d| {
                d.visit_vars(&mut |v| {
                    if !dims.contains_key(v) && !unbound.contains(&v.to_string()) {
                        unbound.push(v.to_string());
                    }
                })
            });
            let name = node.target();
            let d = Diagnostic::new(Code::E0304, format!("the sizes of input `{name}` ({ty}) are not known"))
                .at_opt(node.meta.span, "declared here");
            let d = match unbound.first() {
                Some(v) => d.help(format!("give the size: `--dim {v}=8`")),
                None => d.help(format!("write its type: `{name}:f32[2, 3]=…`")),
            };
            self.out.push(d);
        }
        sizes
    }
}
