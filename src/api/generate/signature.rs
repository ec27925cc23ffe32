//! What the inputs of a language model are: tokens, positions, masks and caches.

use crate::diag::{Code, Diagnostic};
use crate::graph::GraphModule;
use crate::types::{DType, Dim, TensorType, Type, Val};

/// The inputs of a language model, by what they contain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelInputs {
    /// The tokens.
    pub tokens: InputInfo,
    /// How many tokens a call takes.
    pub length: CallLength,
    /// The positions of the tokens.
    pub positions: Vec<InputInfo>,
    /// Which positions may be attended to.
    pub masks: Vec<InputInfo>,
    /// The keys and values of earlier tokens. The results after the scores are their new values, in the same order.
    pub caches: Vec<InputInfo>,
}

/// An input, with its declared type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputInfo {
    pub name: String,
    pub dtype: DType,
    /// The sizes; `None` for a symbolic one.
    pub shape: Vec<Option<usize>>,
}

/// How many tokens a call takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CallLength {
    /// Exactly this many.
    Fixed(usize),
    /// Any number in this range.
    Between(usize, usize),
}

/// Names that inputs with tokens have, the most telling ones first.
const TOKEN_NAMES: [&str; 6] = ["input_ids", "token_ids", "tokens", "ids", "idx", "input"];

impl InputInfo {
    /// The size of the last dim but `n`.
    pub(super) fn size_from_end(&self, n: usize) -> Option<usize> {
        self.shape.len().checked_sub(n + 1).and_then(|d| self.shape[d])
    }

    fn is_integer(&self) -> bool {
        matches!(self.dtype, DType::I64 | DType::I32)
    }

    fn is_named(&self, part: &str) -> bool {
        self.name.to_ascii_lowercase().contains(part)
    }
}

impl ModelInputs {
    /// Reads the types of a model's inputs. The names decide, and the dtypes and ranks where they do not.
    pub(super) fn of_module(module: &GraphModule) -> Result<ModelInputs, Diagnostic> {
        let graph = module.entry().ok_or_else(|| cannot_generate("it has no graph"))?;
        let mut inputs = vec![];
        for n in graph.placeholders() {
            let name = graph[n].target().to_string();
            let info = graph[n].meta.ty.as_ref().and_then(|ty| input_info(&name, ty));
            inputs.push(info.ok_or_else(|| {
                cannot_generate(&format!("the type of input `{name}` is not a tensor with a known rank"))
            })?);
        }
        let masks = take_all(&mut inputs, |i| i.is_named("mask"));
        let positions = take_all(&mut inputs, |i| i.is_integer() && i.is_named("pos"));
        let tokens = take_tokens(&mut inputs)?;
        let caches = take_all(&mut inputs, |i| i.dtype.is_float() && i.shape.len() >= 3);
        if let Some(other) = inputs.first() {
            let title = format!(
                "input `{}` is neither tokens, positions, a mask nor a cache",
                other.name
            );
            return Err(cannot_generate(&title));
        }
        let batch = if tokens.shape.len() == 2 { tokens.shape[0] } else { None };
        if let Some(n) = batch.filter(|n| *n != 1) {
            return Err(cannot_generate(&format!(
                "it takes {n} prompts at a time; export it for one"
            )));
        }
        Ok(ModelInputs {
            length: call_length(module, &tokens)?,
            tokens,
            positions,
            masks,
            caches,
        })
    }

    /// The number of positions that masks and caches of a fixed size have.
    pub(super) fn capacity(&self) -> Option<usize> {
        let masks = self.masks.iter().filter_map(|m| m.size_from_end(0));
        let caches = self.caches.iter().filter_map(|c| c.size_from_end(1));
        masks.chain(caches).min()
    }
}

/// The error for a model that is not a language model, or not one of a known form.
pub(super) fn cannot_generate(reason: &str) -> Diagnostic {
    Diagnostic::new(Code::E0514, format!("the model cannot generate text: {reason}"))
        .note("a model for text takes tokens (`input_ids`), and optionally positions, masks and caches")
}

fn input_info(name: &str, ty: &Type) -> Option<InputInfo> {
    let Val::Leaf(TensorType {
        dtype,
        shape: Some(shape),
    }) = ty
    else {
        return None;
    };
    let size = |d: &Dim| d.as_const().and_then(|n| usize::try_from(n).ok());
    Some(InputInfo {
        name: name.to_string(),
        dtype: *dtype,
        shape: shape.iter().map(size).collect(),
    })
}

fn take_all(inputs: &mut Vec<InputInfo>, is_wanted: impl Fn(&InputInfo) -> bool) -> Vec<InputInfo> {
    let (wanted, rest) = std::mem::take(inputs).into_iter().partition(is_wanted);
    *inputs = rest;
    wanted
}

/// The input with tokens: integers of rank 1 or 2, with a telling name if there are several.
fn take_tokens(inputs: &mut Vec<InputInfo>) -> Result<InputInfo, Diagnostic> {
    let fits = |i: &InputInfo| i.is_integer() && matches!(i.shape.len(), 1 | 2);
    let named = TOKEN_NAMES
        .iter()
        .find_map(|name| inputs.iter().position(|i| fits(i) && i.is_named(name)));
    let mut fitting = (0..inputs.len()).filter(|&i| fits(&inputs[i]));
    let only = fitting.next().filter(|_| fitting.next().is_none());
    match named.or(only) {
        Some(i) => Ok(inputs.remove(i)),
        None => Err(cannot_generate("it has no input of integers with tokens")),
    }
}

fn call_length(module: &GraphModule, tokens: &InputInfo) -> Result<CallLength, Diagnostic> {
    if let Some(n) = tokens.size_from_end(0) {
        return match n {
            0 => Err(cannot_generate("its input of tokens is empty")),
            n => Ok(CallLength::Fixed(n)),
        };
    }
    let graph = module.entry();
    let declared = graph.and_then(|g| {
        let input = g.placeholders().into_iter().find(|&n| g[n].target() == tokens.name)?;
        let Some(Val::Leaf(TensorType { shape: Some(shape), .. })) = &g[input].meta.ty else {
            return None;
        };
        module.dims.get(shape.last()?.as_var()?)
    });
    let bound = |n: Option<i64>, otherwise: usize| n.and_then(|n| usize::try_from(n).ok()).unwrap_or(otherwise);
    let (least, most) = declared.map_or((None, None), |r| (Some(r.min), r.max));
    Ok(CallLength::Between(bound(least, 1).max(1), bound(most, usize::MAX)))
}
