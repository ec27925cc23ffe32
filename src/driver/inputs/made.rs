//! Generated inputs: their types and elements.

use super::bind::{COMMAND_LINE, InputBinder, InputPlace, Value};
use super::fill::{Fill, filled_tensor};
use crate::diag::{Code, Diagnostic};
use crate::tensor::{byte_len, is_available};
use crate::types::{Dim, TensorType, Val};

impl InputBinder<'_> {
    /// Generates a tensor.
    pub(super) fn make(&mut self, place: &InputPlace, fill: Fill, given: Option<&TensorType>) -> Option<Value> {
        let declared = place.ty.as_ref().and_then(|t| t.as_leaf());
        let Some(ty) = given.or(declared) else {
            let d = self.cannot_be_made(place);
            self.out.push(d);
            return None;
        };
        let shape = self.resolve_sizes(place, ty)?;
        if !ty.dtype.is_held() || !byte_len(ty.dtype, &shape).is_some_and(is_available) {
            let title = format!("input `{}` cannot be allocated: {}{shape:?}", place.name, ty.dtype);
            self.out
                .push(Diagnostic::new(Code::E0504, title).at_opt(place.span, "declared here"));
            return None;
        }
        let t = filled_tensor(ty.dtype, &shape, fill);
        self.fit_value(place, Val::Leaf(t), COMMAND_LINE)
    }

    /// The error for an input without a type to generate.
    pub(super) fn cannot_be_made(&self, place: &InputPlace) -> Diagnostic {
        let name = &place.name;
        let (title, label, help) = match &place.ty {
            Some(t) if *t != Val::Unknown => (
                format!("input `{name}` is {t}, so a tensor cannot be generated for it"),
                "declared here",
                format!("pass a value of this type: `{name}=…`"),
            ),
            _ => (
                format!("the type of input `{name}` is unknown, so it cannot be generated"),
                "its type is missing",
                format!("specify its type: `{name}:f32[2, 3]=…`"),
            ),
        };
        Diagnostic::new(Code::E0304, title).at_opt(place.span, label).help(help)
    }

    /// The other name of a size, for a message: ", or `--dim x[1]=8`".
    fn place_of(&self, symbol: &str) -> String {
        let known = super::sizes::input_symbols(self.graph);
        let place = known.get(symbol).and_then(Option::as_ref);
        place.map_or(String::new(), |place| format!(", or `--dim {place}=8`"))
    }

    /// The sizes of a tensor of type `ty`, with known symbols replaced.
    pub(super) fn resolve_sizes(&mut self, place: &InputPlace, ty: &TensorType) -> Option<Vec<usize>> {
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
            let name = &place.name;
            let d = Diagnostic::new(Code::E0304, format!("the sizes of input `{name}` ({ty}) are unknown"))
                .at_opt(place.span, "declared here");
            let d = match unbound.first() {
                Some(v) => d.help(format!("set the size with `--dim {v}=8`{}", self.place_of(v))),
                None => d.help(format!("specify its type: `{name}:f32[2, 3]=…`")),
            };
            self.out.push(d);
        }
        sizes
    }
}
