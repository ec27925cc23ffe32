//! Shorthand for writing decompositions: argument values and the most common ops.

use super::{Build, Call, Op, OpError, OpResult, Sizes, Traced, lift_literal};
use crate::diag::Code;
use crate::op::{Meaning, OpId};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// A list of constant ints as an argument.
pub(crate) fn ints_val<T>(v: &[i64]) -> Val<T> {
    Val::List(v.iter().map(|&i| Val::int(i)).collect())
}

/// A list of sizes as an argument.
pub(crate) fn dims_val<T>(v: &[Dim]) -> Val<T> {
    Val::List(v.iter().map(|d| Val::Int(d.clone())).collect())
}

/// A list of tensors as an argument.
pub(crate) fn list_val(v: &[Traced]) -> Val<Traced> {
    Val::List(v.iter().map(Val::from).collect())
}

impl Traced {
    /// The shape; E0304 if the rank is not known.
    pub fn shape(&self) -> OpResult<&[Dim]> {
        self.ty
            .shape
            .as_deref()
            .ok_or_else(|| OpError::new(Code::E0304, "the rank of a tensor is unknown"))
    }

    /// The size of a dim; E0302 if there is no such dim.
    pub fn size(&self, dim: usize) -> OpResult<&Dim> {
        let shape = self.shape()?;
        shape.get(dim).ok_or_else(|| {
            let rank = shape.len();
            OpError::shape(format!("expected a tensor with at least {} dims, got {rank}", dim + 1))
        })
    }

    /// The rank; E0304 if it is not known.
    pub fn rank(&self) -> OpResult<usize> {
        self.shape().map(<[Dim]>::len)
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }
}

impl Call<Traced> {
    /// The call with types as arguments.
    pub fn types(&self) -> Call<TensorType> {
        self.map(|t| t.ty.clone())
    }
}

impl dyn Build + '_ {
    /// [`Build::call`] for an op with several tensors as its result.
    pub fn call_many(&mut self, op: OpId, args: impl Into<Vec<Val<Traced>>>) -> OpResult<Vec<Traced>> {
        let v = self.call(op, args.into())?;
        let items = v.items().unwrap_or_default();
        Ok(items.iter().filter_map(|x| x.as_leaf().cloned()).collect())
    }

    /// A pointwise op of one tensor.
    pub fn unary(&mut self, op: OpId, x: &Traced) -> OpResult<Traced> {
        self.op(op, [x.into()])
    }

    /// A pointwise op of two operands, each a tensor or a number.
    pub fn binary(&mut self, op: OpId, x: impl Into<Val<Traced>>, y: impl Into<Val<Traced>>) -> OpResult<Traced> {
        self.op(op, [x.into(), y.into()])
    }

    /// `x` converted to `dtype`, or `x` itself if it already has this dtype.
    #[allow(clippy::wrong_self_convention, reason = "the name of the row")]
    pub fn to_dtype(&mut self, x: &Traced, dtype: DType) -> OpResult<Traced> {
        if x.dtype() == dtype {
            return Ok(x.clone());
        }
        let op = match x.dtype().is_stored() || dtype.is_stored() {
            true => OpId::ConvertStored,
            false => OpId::ToDtype,
        };
        self.op(op, [x.into(), Val::DType(dtype)])
    }

    /// A reduction over `dims`: `sum`, `mean`, `amax`, `amin`.
    pub fn reduce(&mut self, op: OpId, x: &Traced, dims: &[usize], keepdim: bool) -> OpResult<Traced> {
        let dims: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        self.op(op, [x.into(), ints_val(&dims), Val::Bool(keepdim)])
    }

    /// A tensor filled with one value.
    pub fn full(&mut self, shape: &[Dim], value: Val<Traced>, dtype: DType) -> OpResult<Traced> {
        self.op(OpId::Full, [dims_val(shape), value, Val::DType(dtype)])
    }

    /// Inserts a dim of size 1.
    pub fn unsqueeze(&mut self, x: &Traced, dim: usize) -> OpResult<Traced> {
        self.op(OpId::Unsqueeze, [x.into(), Val::int(dim as i64)])
    }

    /// Removes the dim if it has size 1.
    pub fn squeeze(&mut self, x: &Traced, dim: usize) -> OpResult<Traced> {
        self.op(OpId::Squeeze, [x.into(), ints_val(&[dim as i64])])
    }

    /// Expands dims of size 1.
    pub fn expand(&mut self, x: &Traced, shape: &[Dim]) -> OpResult<Traced> {
        if x.ty.shape.as_deref() == Some(shape) && x.ty.has_known_sizes() {
            return Ok(x.clone());
        }
        self.op(OpId::Expand, [x.into(), dims_val(shape)])
    }

    /// Swaps two dims.
    pub fn transpose(&mut self, x: &Traced, a: usize, b: usize) -> OpResult<Traced> {
        x.size(a.max(b))?;
        let mut dims: Vec<usize> = (0..x.rank()?).collect();
        dims.swap(a, b);
        self.permute(x, &dims)
    }

    /// The elements from `start` up to but excluding `end`, with a step, along `dim`.
    pub fn slice(&mut self, x: &Traced, dim: usize, start: Dim, end: Dim, step: i64) -> OpResult<Traced> {
        let args = [
            x.into(),
            Val::int(dim as i64),
            Val::Int(start),
            Val::Int(end),
            Val::int(step),
        ];
        self.op(OpId::Slice, args)
    }

    /// The elements at one index of `dim`; the dim is removed.
    pub fn select(&mut self, x: &Traced, dim: usize, index: Dim) -> OpResult<Traced> {
        self.op(OpId::Select, [x.into(), Val::int(dim as i64), Val::Int(index)])
    }

    /// Concatenates tensors along `dim`.
    pub fn cat(&mut self, tensors: &[Traced], dim: usize) -> OpResult<Traced> {
        self.op(OpId::Cat, [list_val(tensors), Val::int(dim as i64)])
    }

    /// Matrix product with torch's rules for operand ranks.
    pub fn matmul(&mut self, a: &Traced, b: &Traced) -> OpResult<Traced> {
        self.binary(OpId::Matmul, a, b)
    }
}

/// A call of a row with arguments in parameter order; trailing parameters take their defaults.
pub(crate) fn call_of<T: Clone>(op: &'static Op, mut args: Vec<Val<T>>) -> Call<T> {
    for p in op.schema.params.iter().skip(args.len()) {
        args.push(p.default.as_ref().map_or(Val::None, lift_literal));
    }
    Call { op, args }
}

/// A builder that only computes types.
struct TypeBuilder<'a> {
    sizes: &'a mut Sizes,
}

impl Build for TypeBuilder<'_> {
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        let call = call_of(op, args);
        let ty = call.op.result_type(&call.types(), self.sizes)?;
        Ok(ty.map(|t| Traced { id: 0, ty: t.clone() }))
    }
}

/// The type rule of composite ops: the type of the decomposition's result. Panics if the op's meaning is not a
/// decomposition.
pub(crate) fn decomposed_type(call: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let Meaning::Decompose(f) = call.op.meaning else {
        panic!("`{}` does not decompose", call.op.name)
    };
    let traced = call.map(|ty| Traced { id: 0, ty: ty.clone() });
    Ok(f(&mut TypeBuilder { sizes }, &traced)?.map(|t| t.ty.clone()))
}
