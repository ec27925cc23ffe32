//! A region of a tail: a function that is compiled for the sizes that occur.

use super::plan::RegionGraph;
use super::tail::is_fixed;
use crate::diag::Diagnostics;
use crate::driver::compile::Request;
use crate::driver::function::Function;
use crate::driver::inputs::bind::{BoundInputs, Dims, Value};
use crate::driver::load::LoadedModel;
use crate::driver::session::Session;
use crate::graph::GraphModule;
use crate::types::{Dim, TensorType, Type, Val};

/// The number of size combinations whose code all regions of a graph keep, and the least number for a region. Each has memory for its
/// intermediate values.
const KEPT: usize = 256;
const KEPT_OF_REGION: std::ops::RangeInclusive<usize> = 2..=64;

/// The fewest elements of operands and constants for which compiling for new sizes is worthwhile: the interpreter takes longer than
/// compiling if it multiplies, or does anything else, to so many. The decision depends on sizes alone, so that results do not depend
/// on earlier calls.
const FEWEST_IF_HEAVY: usize = 1 << 12;
const FEWEST_ELEMENTS: usize = 1 << 16;

/// A region, and its code for the sizes that occurred.
pub(super) struct Region {
    module: GraphModule,
    inputs: Vec<Type>,
    is_heavy: bool,
    /// The elements of the constants that it reads.
    constants: usize,
    /// The function whose sizes are symbols, and one for calls in which symbols would have two values.
    functions: [Option<Function>; 2],
    /// The number of size combinations whose code is kept.
    kept: usize,
    /// Whether it cannot be compiled.
    failed: bool,
}

impl Region {
    /// One of `count` regions of `module`.
    pub(super) fn new(module: &GraphModule, region: RegionGraph, count: usize) -> Region {
        let module = module.lift(&region.name, region.graph);
        let values = module.attributes.values().filter_map(|a| a.value.as_ref());
        Region {
            constants: values.map(|t| t.numel()).fold(0, usize::saturating_add),
            module,
            inputs: region.inputs,
            is_heavy: region.is_heavy,
            functions: [None, None],
            kept: (KEPT / count.max(1)).clamp(*KEPT_OF_REGION.start(), *KEPT_OF_REGION.end()),
            failed: false,
        }
    }

    /// Runs compiled code, after compiling it if there is none for these sizes. `None` if the interpreter is to run the region:
    /// it is small, or cannot be compiled, or has an error that the interpreter reports better.
    pub(super) fn run(&mut self, session: &mut Session, request: &Request, args: &[Value]) -> Option<Value> {
        if self.failed || !self.is_worthwhile(args) {
            return None;
        }
        let types: Vec<Type> = args.iter().map(|v| v.map(|t| t.ty())).collect();
        let (which, dims) = match self.bind_sizes(&types) {
            Some(dims) => (0, dims),
            None => (1, Dims::new()),
        };
        if self.functions[which].is_none() {
            self.functions[which] = Some(self.function_for(&types, which == 0, request)?);
        }
        let function = self.functions[which].as_mut()?;
        let values = args.to_vec();
        let bound = BoundInputs { values, types, dims };
        // Without code, the interpreter runs the region from now on, and reports what is wrong. A cancelled call says nothing.
        if function.prepare(session, &bound).is_err() {
            session.diagnostics = Diagnostics::new();
            self.failed = !session.cancel.is_cancelled();
            return None;
        }
        let called = function.call(session, &bound);
        session.diagnostics = Diagnostics::new();
        called.ok().map(|c| c.result)
    }

    fn is_worthwhile(&self, args: &[Value]) -> bool {
        let elements = args.iter().flat_map(|v| v.leaves()).map(|t| t.numel());
        let elements = elements.fold(self.constants, usize::saturating_add);
        elements
            >= if self.is_heavy {
                FEWEST_IF_HEAVY
            } else {
                FEWEST_ELEMENTS
            }
    }

    /// A function of the region. With `symbols`, each size that is not known before a call is a symbol; sizes that are equal in the
    /// first call have one symbol.
    fn function_for(&self, first: &[Type], symbols: bool, request: &Request) -> Option<Function> {
        let mut module = self.module.clone();
        let graph = module.entry_mut()?;
        for ((p, known), first) in graph.placeholders().into_iter().zip(&self.inputs).zip(first) {
            let meta = graph.meta_mut(p);
            meta.ty = if symbols { declare(known, first) } else { None };
            meta.declared = meta.ty.is_some();
        }
        let model = LoadedModel::new("region", module);
        Some(Function::new(model, request.clone()).keep_versions(self.kept))
    }

    /// The values of the symbols in a call. `None` if one would have two values.
    fn bind_sizes(&self, types: &[Type]) -> Option<Dims> {
        let mut dims = Dims::new();
        let Some(function) = &self.functions[0] else {
            return Some(all_sizes(types));
        };
        let graph = function.module().entry()?;
        for (&p, ty) in graph.placeholders().iter().zip(types) {
            let (Some(Val::Leaf(declared)), Val::Leaf(ty)) = (&graph[p].meta.ty, ty) else {
                continue;
            };
            for (d, size) in declared.shape.iter().flatten().zip(ty.shape.iter().flatten()) {
                let (Some(name), Some(size)) = (d.as_var(), size.as_const()) else {
                    continue;
                };
                if *dims.entry(name.to_string()).or_insert(size) != size {
                    return None;
                }
            }
        }
        Some(dims)
    }
}

/// The declared type of an input whose type is `known` before a call and `first` in the first one.
fn declare(known: &Type, first: &Type) -> Option<Type> {
    match (known, first) {
        _ if is_fixed(known) => Some(known.clone()),
        (Val::Leaf(known), Val::Leaf(first)) => {
            let sizes = known.shape.iter().flatten().zip(first.shape.iter().flatten());
            let dims: Vec<Dim> = sizes.map(|(k, f)| declare_size(k, f)).collect();
            Some(Val::Leaf(TensorType::new(first.dtype, dims)))
        }
        _ => None,
    }
}

fn declare_size(known: &Dim, first: &Dim) -> Dim {
    match (known.as_const(), first.as_const()) {
        (None, Some(first)) => Dim::var(&symbol_of(first)),
        _ => known.clone(),
    }
}

/// The symbol of sizes that are `first` in the first call.
fn symbol_of(first: i64) -> String {
    format!("n{first}")
}

/// The symbols of the first call, and their values in it.
fn all_sizes(types: &[Type]) -> Dims {
    let leaves = types.iter().flat_map(|t| t.leaves());
    let sizes = leaves.flat_map(|t| t.shape.iter().flatten().filter_map(Dim::as_const));
    sizes.map(|size| (symbol_of(size), size)).collect()
}
