//! Random types, literals and elements for trying rules out.

use super::tensor_type;
use crate::graph::{Arg, GraphModule};
use crate::syntax::ast::RewriteMark;
use crate::tensor::{Scalar, SplitMix, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::collections::HashMap;
use std::convert::Infallible;

/// Floats at which rules go wrong: zeros, infinities, NaN, the ends of ranges and ties of rounding.
pub(crate) const SPECIAL_FLOATS: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MAX,
    3.0e38,
    -3.0e38,
    65504.0,
    1e-45,
    1e-310,
    6e-8,
    0.1,
    -2.5,
    1.5,
    2.5,
];

/// Integers at which rules go wrong: the ends of the ranges of dtypes.
pub(crate) const SPECIAL_INTS: [i64; 14] = [
    0,
    1,
    -1,
    2,
    127,
    -128,
    128,
    255,
    32767,
    -32768,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

/// The most elements of an input.
const MAX_ELEMENTS: usize = 4096;

/// The most types and literals that are taken from a model.
const MAX_SAMPLES: usize = 1000;

/// Types and literals of a model, to which rules are going to be applied.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    types: Vec<TensorType>,
    literals: Vec<Arg>,
}

impl Samples {
    /// Those of a checked module.
    pub fn of_module(module: &GraphModule) -> Samples {
        let mut out = Samples::default();
        for n in module.graphs.values().flat_map(|g| g.iter().map(move |n| &g[n])) {
            let ty = n.meta.ty.as_ref().and_then(tensor_type).cloned();
            let fits = |t: &TensorType| t.fixed_shape().is_some_and(|s| is_small(&s));
            out.types.extend(ty.filter(fits));
            let args = n.args().iter().chain(n.kwargs().iter().map(|(_, v)| v));
            out.literals.extend(args.filter(|a| is_literal(a)).cloned());
        }
        out.types.truncate(MAX_SAMPLES);
        out.literals.truncate(MAX_SAMPLES);
        out
    }
}

/// Whether a tensor of this shape is small enough to be tried.
fn is_small(shape: &[usize]) -> bool {
    let elements = shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d));
    elements.is_some_and(|n| n <= MAX_ELEMENTS)
}

fn is_literal(a: &Arg) -> bool {
    let mut literal = true;
    let _: Result<Arg, Infallible> = a.try_map(&mut |_| {
        literal = false;
        Ok(Val::None)
    });
    literal
}

/// A stream of random choices, the same in every run.
pub(super) struct Random<'a> {
    state: SplitMix,
    samples: &'a Samples,
    /// The type that the inputs of this graph share, if they are alike.
    common: Option<TensorType>,
    /// The values of the symbolic sizes of this graph.
    sizes: HashMap<String, usize>,
}

impl<'a> Random<'a> {
    pub(super) fn new(samples: &'a Samples) -> Random<'a> {
        Random {
            state: SplitMix::new(7),
            samples,
            common: None,
            sizes: HashMap::new(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.state.next_below(n)
    }

    pub(super) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Whether to take a sample of the model, if there are any.
    fn takes_sample(&mut self, count: usize) -> bool {
        count > 0 && self.below(2) == 0
    }

    /// Begins a graph. In half of them, inputs have a common type.
    pub(super) fn begin_graph(&mut self) {
        self.sizes.clear();
        self.common = None;
        if self.below(2) == 0 {
            self.common = Some(self.any_type());
        }
    }

    fn any_type(&mut self) -> TensorType {
        use DType::*;
        let samples = &self.samples.types;
        if self.takes_sample(samples.len()) {
            return self.pick(samples);
        }
        let dtype = self.pick(&[F32, F32, F64, F16, BF16, I64, I32, I16, I8, U8, B8]);
        let shapes: [&[usize]; 10] = [
            &[2, 3],
            &[2, 3],
            &[3],
            &[],
            &[1, 3],
            &[3, 3],
            &[2, 1, 3],
            &[2, 3, 4],
            &[2, 3, 5, 4],
            &[2, 3, 4, 5, 6],
        ];
        TensorType::with_fixed_shape(dtype, self.pick(&shapes))
    }

    /// A complete type for an input whose declared type may be incomplete. `None` unless the input is a tensor.
    pub(super) fn type_of_input(&mut self, declared: &Type) -> Option<TensorType> {
        let mut ty = match self.common.clone() {
            Some(ty) => ty,
            None => self.any_type(),
        };
        match declared {
            Val::Unknown => {}
            Val::Leaf(t) => {
                ty.dtype = t.dtype;
                if let Some(dims) = &t.shape {
                    let shape: Option<Vec<usize>> = dims.iter().map(|d| self.size(d)).collect();
                    ty = TensorType::with_fixed_shape(t.dtype, &shape.filter(|s| is_small(s))?);
                }
            }
            _ => return None,
        }
        Some(ty)
    }

    /// A type of a further item: half of the time that of the item before it.
    pub(super) fn type_like(&mut self, before: Option<TensorType>) -> Option<TensorType> {
        match before.filter(|_| self.below(2) == 0) {
            Some(ty) => Some(ty),
            None => self.type_of_input(&Val::Unknown),
        }
    }

    /// A size: a symbol has one value in a graph.
    fn size(&mut self, dim: &Dim) -> Option<usize> {
        if let Some(n) = dim.as_const() {
            return usize::try_from(n).ok().filter(|&n| n <= MAX_ELEMENTS);
        }
        let new = 1 + self.below(4);
        Some(*self.sizes.entry(dim.to_string()).or_insert(new))
    }

    /// A literal of any kind.
    pub(super) fn literal(&mut self) -> Arg {
        let samples = &self.samples.literals;
        if self.takes_sample(samples.len()) {
            return self.pick(samples);
        }
        let ints = |v: &[i64]| Val::List(v.iter().map(|&i| Val::int(i)).collect());
        let mut pool: Vec<Arg> = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 16, -1, -2].map(Val::int).to_vec();
        pool.extend([0.0, -0.0, 1.0, 1.0, 2.0, 0.5, -0.5, -1.5, 1e-5, f64::INFINITY, f64::NAN].map(Val::Float));
        let lists: [&[i64]; 15] = [
            &[],
            &[0],
            &[1],
            &[2],
            &[0, 1],
            &[1, 0],
            &[1, 1],
            &[2, 2],
            &[6],
            &[3, 2],
            &[2, 3],
            &[-1],
            &[1, 6],
            &[3],
            &[0, 1, 1],
        ];
        pool.extend(lists.map(ints));
        use DType::*;
        pool.extend([F32, F64, F16, BF16, I64, I32].map(Val::DType));
        pool.extend([Val::Bool(true), Val::Bool(false), Val::None, Val::None]);
        self.pick(&pool)
    }

    /// A small number, half of the time.
    pub(super) fn number(&mut self) -> Option<Arg> {
        let small = self.below(4) as i64;
        (self.below(2) == 0).then_some(Val::int(small))
    }

    /// Random elements. A rule that may round differently only gets ordinary floats, and one that is marked so only small
    /// integers, whose products with floats do not overflow.
    pub(super) fn tensor(&mut self, ty: &TensorType, mark: Option<RewriteMark>) -> Tensor {
        let (plain, small) = (mark != Some(RewriteMark::Exact), mark == Some(RewriteMark::Fast));
        let shape = ty.fixed_shape().unwrap_or_default();
        let signed = self.below(2) == 0;
        Tensor::from_fn(ty.dtype, &shape, |_| {
            let unit = self.below(1000) as f64 / 1000.0;
            match (ty.dtype.is_float(), self.below(3)) {
                // Away from zero, where a relative error says something; of one sign in half of the graphs.
                (true, _) if plain && signed && self.below(2) == 0 => Scalar::F64(-0.5 - unit),
                (true, _) if plain => Scalar::F64(0.5 + unit),
                (true, 0) => Scalar::F64(unit * 8.0 - 4.0),
                (true, _) => Scalar::F64(self.pick(&SPECIAL_FLOATS)),
                (false, 0) if !small => Scalar::Int(DType::I64, self.pick(&SPECIAL_INTS)),
                (false, _) => Scalar::Int(DType::I64, self.below(41) as i64 - 20),
            }
        })
    }
}
