//! The prims of Inductor, which its decompositions and its graph passes create.

use crate::op::emit::{dims_val, ints_val};
use crate::op::rows::norms::softmax::softmax_exp;
use crate::op::rows::spell::text;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [arithmetic_rows(), pool_rows(), seed_rows(), random_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn arithmetic_rows() -> Vec<Op> {
    vec![
        Op::composite("prims_fma(Tensor a, Any b, Tensor c) -> Tensor", |b, c| {
            let product = b.mul(c.leaf("a")?, c.get("b").clone())?;
            b.add(&product, c.leaf("c")?).map(Val::Leaf)
        })
        .doc("a * b + c, rounded twice as in PyTorch's kernel")
        .spelled("prims.fma.default"),
        Op::composite(
            "prepare_softmax_online(Tensor a, int dim) -> (Tensor, Tensor)",
            |b, c| {
                let x = c.leaf("a")?;
                let dim = crate::op::wrap_dim(c.int("dim")?, x.rank()?)?;
                let max = b.reduce(OpId::Amax, x, &[dim], true)?;
                let rest = b.sub(x, &max)?;
                let exp = softmax_exp(b, &rest)?;
                let sum = b.reduce(OpId::Sum, &exp, &[dim], true)?;
                Ok(Val::Tuple(vec![max.into(), sum.into()]))
            },
        )
        .doc("the row statistics for softmax: the maximum, and the sum of exp(a - maximum)")
        .spelled("prims.@.default"),
    ]
}

const POOL: &str = "SymInt[] stride, SymInt[] padding, SymInt[] dilation";

fn pool_rows() -> Vec<Op> {
    vec![
        Op::composite(text!(
                "_low_memory_max_pool_with_offsets(Tensor self, SymInt[] kernel_size, {POOL}, bool ceil_mode) -> (Tensor, Tensor)"
            ),
            with_offsets,
        )
        .doc("max_pool2d or max_pool3d, and the i8 index of each maximum in its window")
        .spelled("prims.@.default"),
        Op::composite(text!(
                "_low_memory_max_pool_offsets_to_indices(Tensor self, SymInt[] kernel_size, SymInt[] input_size, {POOL}) -> Tensor"
            ),
            to_indices,
        )
        .doc("indices in windows, converted to indices in the input")
        .spelled("prims.@.default"),
    ]
}

/// Converts row-major positions to indices, one for each size.
fn unflatten_index(b: &mut dyn Build, place: &Traced, sizes: &[Dim]) -> OpResult<Vec<Traced>> {
    let mut out = vec![];
    let mut rest = place.clone();
    for d in 1..sizes.len() {
        let inner = sizes[d..].iter().fold(Dim::Const(1), |p, n| p.mul(n));
        out.push(b.op(OpId::Div, [(&rest).into(), Val::Int(inner.clone()), Val::str("floor")])?);
        rest = b.remainder(&rest, Val::Int(inner))?;
    }
    out.push(rest);
    Ok(out)
}

/// Converts indices to row-major positions.
fn flatten_indices(b: &mut dyn Build, indices: &[Traced], sizes: &[Dim]) -> OpResult<Traced> {
    let (first, rest) = indices
        .split_first()
        .ok_or_else(|| OpError::arg("kernel_size", "a window must have a dim"))?;
    rest.iter().zip(&sizes[1..]).try_fold(first.clone(), |sum, (i, n)| {
        let sum = b.mul(&sum, Val::Int(n.clone()))?;
        b.add(&sum, i)
    })
}

/// The start of the window of each result along spatial dim `d` of `x`: `i * stride - padding`.
fn window_starts(b: &mut dyn Build, c: &Call<Traced>, x: &Traced, d: usize) -> OpResult<Traced> {
    let (stride, padding) = (c.ints("stride")?, c.ints("padding")?);
    let n = c.ints("kernel_size")?.len();
    let dim = x.rank()? - n + d;
    let length = x.size(dim)?.clone();
    let places = b.op(
        OpId::Arange,
        [
            Val::int(0),
            Val::Int(length.clone()),
            Val::int(1),
            Val::DType(DType::I64),
        ],
    )?;
    let mut shape = vec![Dim::Const(1); x.rank()?];
    shape[dim] = length;
    let places = b.op(OpId::Reshape, [places.into(), dims_val(&shape)])?;
    let places = b.mul(&places, Val::int(stride[d]))?;
    b.sub(&places, Val::int(padding[d]))
}

/// The number of dims of the windows. Each list must have an item per dim.
fn window_rank(c: &Call<Traced>) -> OpResult<usize> {
    let n = c.ints("kernel_size")?.len();
    let whole = ["stride", "padding", "dilation"]
        .iter()
        .all(|p| c.ints(p).is_ok_and(|v| v.len() == n));
    let x = c.leaf("self")?;
    if !(2..=3).contains(&n) || !whole || x.rank()? < n || c.ints("dilation")?.contains(&0) {
        return Err(OpError::arg(
            "kernel_size",
            "expected 2 or 3 sizes of the window, and as many strides, paddings and dilations",
        ));
    }
    Ok(n)
}

fn with_offsets(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let n = window_rank(c)?;
    let x = c.leaf("self")?;
    let pools = [
        OpId::MaxPool1dWithIndices,
        OpId::MaxPool2dWithIndices,
        OpId::MaxPool3dWithIndices,
    ];
    let results = b.call_many(OpId::for_dims(pools, n), c.args.clone())?;
    let [values, indices] = &results[..] else {
        return Err(OpError::arg("self", "max_pool returns two tensors"));
    };
    let sizes = x.shape()?[x.rank()? - n..].to_vec();
    let dilation = c.ints("dilation")?;
    let mut within = vec![];
    for (d, place) in unflatten_index(b, indices, &sizes)?.iter().enumerate() {
        let begin = window_starts(b, c, indices, d)?;
        let distance = b.sub(place, &begin)?;
        within.push(b.op(OpId::Div, [distance.into(), Val::int(dilation[d]), Val::str("floor")])?);
    }
    let offsets = flatten_indices(b, &within, &c.dims("kernel_size")?)?;
    let offsets = b.to_dtype(&offsets, DType::I8)?;
    Ok(Val::Tuple(vec![values.into(), offsets.into()]))
}

fn to_indices(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    window_rank(c)?;
    let (sizes, dilation) = (c.dims("input_size")?, c.ints("dilation")?);
    if sizes.len() != dilation.len() {
        return Err(OpError::arg("input_size", "expected a size for each dim of the window"));
    }
    let offsets = b.to_dtype(c.leaf("self")?, DType::I64)?;
    let mut places = vec![];
    for (d, within) in unflatten_index(b, &offsets, &c.dims("kernel_size")?)?
        .iter()
        .enumerate()
    {
        let begin = window_starts(b, c, &offsets, d)?;
        let distance = b.mul(within, Val::int(dilation[d]))?;
        places.push(b.add(&begin, &distance)?);
    }
    flatten_indices(b, &places, &sizes).map(Val::Leaf)
}

/// As in PyTorch's own kernels of these prims, draws from the default stream, whatever the seed tensors contain.
fn random_of(b: &mut dyn Build, c: &Call<Traced>, op: OpId) -> OpResult<Val<Traced>> {
    b.op(op, [c.get("size").clone(), Val::DType(DType::F32)]).map(Val::Leaf)
}

fn seed_rows() -> Vec<Op> {
    vec![
        Op::composite("inductor_seed(Device? device=None) -> Tensor", |b, _| {
            seeds_of(b, ints_val(&[]))
        })
        .doc("a random seed")
        .spelled("prims.@.default")
        .effect(Effect::Random),
        Op::composite("inductor_seeds(SymInt count, Device? device=None) -> Tensor", |b, c| {
            seeds_of(b, Val::List(vec![c.get("count").clone()]))
        })
        .doc("random seeds")
        .spelled("prims.@.default")
        .effect(Effect::Random),
        Op::composite("inductor_lookup_seed(Tensor seeds, int index) -> Tensor", |b, c| {
            let one = b.op(
                OpId::Select,
                [c.leaf("seeds")?.into(), Val::int(0), c.get("index").clone()],
            )?;
            b.clone(&one).map(Val::Leaf)
        })
        .doc("one of several seeds")
        .spelled("prims.@.default"),
    ]
}

fn random_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "inductor_random(SymInt[] size, Tensor seed, str mode, *, ScalarType? align_dtype=None) -> Tensor",
            |b, c| match c.str("mode")? {
                "rand" => random_of(b, c, OpId::Rand),
                "randn" => random_of(b, c, OpId::Randn),
                _ => Err(OpError::arg("mode", "mode must be rand or randn")),
            },
        )
        .doc("rand or randn, selected by `mode`")
        .spelled("prims.@.default")
        .effect(Effect::Random),
        Op::composite(
            "inductor_randint(SymInt low, SymInt high, SymInt[] size, Tensor seed) -> Tensor",
            |b, c| {
                let args = ["low", "high", "size"].map(|p| c.get(p).clone());
                b.op(OpId::Randint, args).map(Val::Leaf)
            },
        )
        .doc("randint")
        .spelled("prims.@.default")
        .effect(Effect::Random),
    ]
}

fn seeds_of(b: &mut dyn Build, size: Val<Traced>) -> OpResult<Val<Traced>> {
    b.op(
        OpId::Randint,
        [Val::int(0), Val::int(i64::MAX), size, Val::DType(DType::I64)],
    )
    .map(Val::Leaf)
}
