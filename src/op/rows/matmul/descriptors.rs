//! The matrix products that calls describe: their operands, their sizes and the checks of torch.

use super::same_dtype;
use crate::op::rows::spell::list_text;
use crate::op::{Call, Contraction, MatrixProduct, OpError, OpResult, Sizes};
use crate::types::{DType, Dim, TensorType};

fn cannot_multiply(a: &[Dim], b: &[Dim], b_transposed: bool) -> String {
    let fold = |s: &[Dim]| match s {
        [k] => (Dim::Const(1), k.clone()),
        [lead @ .., k] => (lead.iter().fold(Dim::Const(1), |p, d| p.mul(d)), k.clone()),
        [] => (Dim::Const(1), Dim::Const(1)),
    };
    let (m, k) = fold(a);
    let (k2, n) = match b {
        [k] => (k.clone(), Dim::Const(1)),
        [.., x, y] if b_transposed => (y.clone(), x.clone()),
        [.., x, y] => (x.clone(), y.clone()),
        [] => (Dim::Const(1), Dim::Const(1)),
    };
    format!("mm: mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {k2}x{n})")
}

/// The parameters of a product.
struct ProductParams<'a> {
    a: &'a str,
    b: &'a str,
    bias: Option<&'a str>,
    b_transposed: bool,
}

impl ProductParams<'_> {
    /// The contraction by the rules of `matmul`: an operand of rank 1 is a row on the left or a column on the right,
    /// and the result lacks that dim.
    fn build(&self, c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
        let (da, a) = c.shaped(self.a)?;
        let (db, b) = c.shaped(self.b)?;
        let dtype = same_dtype(da, db)?;
        let shape = matmul_shape(a, b, self.b_transposed, s)?;
        let factor = |name: &str| {
            if self.bias.is_some() && c.op.schema.index_of(name).is_some() {
                c.f64(name)
            } else {
                Ok(1.0)
            }
        };
        let (alpha, beta) = (factor("alpha")?, factor("beta")?);
        let bias = match self.bias.filter(|n| !c.is_none(n)) {
            Some(name) => {
                self.check_bias(c, name, dtype, &shape, s)?;
                c.op.schema.index_of(name)
            }
            None => None,
        };
        let index = |name: &str| c.op.schema.index_of(name).unwrap_or_default();
        Ok(Contraction::MatMul(MatrixProduct {
            a: index(self.a),
            b: index(self.b),
            bias,
            a_transposed: false,
            b_transposed: self.b_transposed && b.len() > 1,
            alpha,
            beta,
            out: TensorType::new(dtype, shape),
        }))
    }

    fn check_bias(&self, c: &Call<TensorType>, name: &str, dtype: DType, out: &[Dim], s: &mut Sizes) -> OpResult<()> {
        let (d, bias) = c.shaped(name)?;
        if d != dtype {
            return Err(OpError::dtype(format!(
                "self and mat2 must have the same dtype, but got {} and {}",
                d.scalar_type_name(),
                dtype.scalar_type_name()
            )));
        }
        let fits = |i: usize, have: &Dim, s: &mut Sizes| {
            if *have == Dim::Const(1) {
                return Ok(());
            }
            let want = &out[i];
            s.unify_dims(want, have, || {
                format!(
                    "The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton dimension \
                     {i}.  Target sizes: {}.  Tensor sizes: {}",
                    list_text(out),
                    list_text(bias)
                )
            })
            .map(|_| ())
        };
        let Some(lead) = out.len().checked_sub(bias.len()) else {
            return Err(OpError::shape(format!(
                "the addend has shape {}, which does not broadcast to {}",
                list_text(bias),
                list_text(out)
            )));
        };
        bias.iter()
            .enumerate()
            .try_for_each(|(j, have)| fits(lead + j, have, s))
    }
}

/// The shape of `a @ b` by the rules of `torch.matmul`.
pub(in crate::op::rows) fn matmul_shape(a: &[Dim], b: &[Dim], b_transposed: bool, s: &mut Sizes) -> OpResult<Vec<Dim>> {
    if a.is_empty() || b.is_empty() {
        return Err(OpError::shape(format!(
            "both arguments to matmul need to be at least 1D, but they are {}D and {}D",
            a.len(),
            b.len()
        )));
    }
    let (lead_a, m, ka) = match a {
        [k] => (&a[..0], None, k),
        [lead @ .., m, k] => (lead, Some(m), k),
        [] => unreachable!("checked above"),
    };
    let (lead_b, kb, n) = match b {
        [k] => (&b[..0], k, None),
        [lead @ .., n, k] if b_transposed => (lead, k, Some(n)),
        [lead @ .., k, n] => (lead, k, Some(n)),
        [] => unreachable!("checked above"),
    };
    s.unify_dims(ka, kb, || match (a, b) {
        ([x], [y]) => format!(
            "inconsistent tensor size, expected tensor [{x}] and src [{y}] to have the same number of elements, but got {x} \
             and {y} elements respectively"
        ),
        ([.., m, k], [v]) => format!("size mismatch, got input ({m}), mat ({m}x{k}), vec ({v})"),
        _ if lead_b.is_empty() => cannot_multiply(a, b, b_transposed),
        _ => format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{}, {ka}] but got: [{}, {kb}].",
            lead_b[0], lead_b[0]
        ),
    })?;
    let mut out = s.broadcast(lead_a, lead_b)?;
    out.extend(m.cloned());
    out.extend(n.cloned());
    Ok(out)
}

fn want_rank(c: &Call<TensorType>, names: [&str; 2], rank: usize) -> OpResult<()> {
    for name in names {
        let found = c.shaped(name)?.1.len();
        if found != rank {
            return Err(OpError::shape(match rank {
                2 => format!("{}: {name} must be a matrix, got {found}-D tensor", c.op.name),
                1 => {
                    let ranks = names.map(|n| c.shaped(n).map_or(0, |t| t.1.len()));
                    format!("1D tensors expected, but got {}D and {}D tensors", ranks[0], ranks[1])
                }
                _ => {
                    let which = if name == names[0] { "batch1" } else { "batch2" };
                    format!("{which} must be a 3D tensor")
                }
            }));
        }
    }
    Ok(())
}

const fn plain_product<'a>(a: &'a str, b: &'a str) -> ProductParams<'a> {
    ProductParams {
        a,
        b,
        bias: None,
        b_transposed: false,
    }
}

pub(super) fn mm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["self", "mat2"], 2)?;
    plain_product("self", "mat2").build(c, s)
}

/// Requires equal batch sizes; batches are not broadcast.
pub(super) fn same_batch(c: &Call<TensorType>, names: [&str; 2], s: &mut Sizes) -> OpResult<()> {
    want_rank(c, names, 3)?;
    let (a, b) = (c.shaped(names[0])?.1, c.shaped(names[1])?.1);
    s.unify_dims(&a[0], &b[0], || {
        format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].",
            a[0], a[2], b[0], b[1]
        )
    })?;
    Ok(())
}

pub(super) fn bmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    same_batch(c, ["self", "mat2"], s)?;
    plain_product("self", "mat2").build(c, s)
}

pub(super) fn matmul(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    plain_product("self", "other").build(c, s)
}

pub(super) fn mv(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (a, v) = (c.shaped("self")?.1.len(), c.shaped("vec")?.1.len());
    if (a, v) != (2, 1) {
        return Err(OpError::shape(format!(
            "vector + matrix @ vector expected, got {}, {a}, {v}",
            1
        )));
    }
    plain_product("self", "vec").build(c, s)
}

pub(super) fn dot(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["self", "tensor"], 1)?;
    let (a, b) = (c.shaped("self")?.0, c.shaped("tensor")?.0);
    if a != b {
        return Err(OpError::dtype(format!(
            "dot : expected both vectors to have same dtype, but found {} and {}",
            a.scalar_type_name(),
            b.scalar_type_name()
        )));
    }
    plain_product("self", "tensor").build(c, s)
}

pub(super) fn linear(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (x, w) = (c.shaped("input")?.1.len(), c.shaped("weight")?.1.len());
    if x == 0 || w == 0 {
        return Err(OpError::shape(format!(
            "both arguments to linear need to be at least 1D, but they are {x}D and {w}D"
        )));
    }
    if w > 2 {
        return Err(OpError::shape(format!(
            "linear: weight must be a matrix or a vector, got {w}-D tensor"
        )));
    }
    ProductParams {
        a: "input",
        b: "weight",
        bias: Some("bias"),
        b_transposed: true,
    }
    .build(c, s)
}

pub(super) fn addmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["mat1", "mat2"], 2)?;
    ProductParams {
        a: "mat1",
        b: "mat2",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

pub(super) fn baddbmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    same_batch(c, ["batch1", "batch2"], s)?;
    ProductParams {
        a: "batch1",
        b: "batch2",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

pub(super) fn addmv(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (b, a, v) = (
        c.shaped("self")?.1.len(),
        c.shaped("mat")?.1.len(),
        c.shaped("vec")?.1.len(),
    );
    if (a, v) != (2, 1) || b > 1 {
        return Err(OpError::shape(format!(
            "vector + matrix @ vector expected, got {b}, {a}, {v}"
        )));
    }
    ProductParams {
        a: "mat",
        b: "vec",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}
