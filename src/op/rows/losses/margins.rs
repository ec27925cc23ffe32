//! Margin losses, and losses on distances between embeddings.

use super::{loss, reduce_terms, widen_tensors};
use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = elementwise_rows();
    v.extend(hinge_rows());
    v.extend(triplet_rows());
    v.extend(cosine_embedding_rows());
    v.extend(class_margin_rows());
    v
}

fn elementwise_rows() -> Vec<Op> {
    vec![
        loss!(
            "soft_margin_loss",
            "Tensor self, Tensor target",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            soft_margin,
            "log(1 + exp(-target self))"
        )
        .module("SoftMarginLoss(size_average=None, reduce=None, reduction='mean') = soft_margin_loss($0:input, $1:target, reduction)"),
        loss!(
            "margin_ranking_loss",
            "Tensor input1, Tensor input2, Tensor target, float margin=0.0",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            margin_ranking_loss,
            "max(0, -target (input1 - input2) + margin)"
        )
        // torch's functions outside `torch.nn` do not reduce by default.
        .form(
            "torch.margin_ranking_loss",
            "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=0) -> Tensor",
        )
        .module(
            "MarginRankingLoss(margin=0.0, size_average=None, reduce=None, reduction='mean') = margin_ranking_loss($0:input1, \
             $1:input2, $2:target, margin, reduction)",
        ),
    ]
}

fn hinge_rows() -> Vec<Op> {
    vec![
        loss!(
            "hinge_embedding_loss",
            "Tensor self, Tensor target, float margin=1.0",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            hinge_embedding_loss,
            "self where target is 1, max(0, margin - self) where it is -1"
        )
        .form(
            "torch.hinge_embedding_loss",
            "hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=0) -> Tensor",
        )
        .module(
            "HingeEmbeddingLoss(margin=1.0, size_average=None, reduce=None, reduction='mean') = hinge_embedding_loss($0:input, \
             $1:target, margin, reduction)",
        ),
    ]
}

fn triplet_rows() -> Vec<Op> {
    vec![
        loss!(
            "triplet_margin_loss",
            "Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            triplet_margin_loss,
            "max(0, |anchor - positive| - |anchor - negative| + margin)"
        )
        .form(
            "torch.triplet_margin_loss",
            "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, int reduction=0) -> Tensor",
        )
        .module(
            "TripletMarginLoss(margin=1.0, p=2.0, eps=1e-06, swap=False, size_average=None, reduce=None, reduction='mean') = \
             triplet_margin_loss($0:anchor, $1:positive, $2:negative, margin, p, eps, swap, reduction)",
        ),
        Op::composite("triplet_margin_with_distance_loss(Tensor anchor, Tensor positive, Tensor negative, *, Any distance_function=None, \
             float margin=1.0, bool swap=False, str reduction='mean') -> Tensor",
            |b, c| {
                if !c.is_none("distance_function") {
                    return Err(OpError::arg("distance_function", "custom distance functions are not supported")
                        .help("trace the model, which turns the distance into nodes"));
                }
                let mut args: Vec<Val<Traced>> = c.args[..3].to_vec();
                args.extend([c.get("margin").clone(), Val::Float(2.0), Val::Float(1e-6)]);
                args.extend([c.get("swap").clone(), c.get("reduction").clone()]);
                b.call(OpId::TripletMarginLoss, args)
            },
        )
        .doc("triplet_margin_loss with the distance of pairwise_distance")
        .spelled("torch.nn.functional.@")
        .module(
            "TripletMarginWithDistanceLoss(*, distance_function=None, margin=1.0, swap=False, reduction='mean') = \
             triplet_margin_with_distance_loss($0:anchor, $1:positive, $2:negative, distance_function=distance_function, \
             margin=margin, swap=swap, reduction=reduction)",
        ),
    ]
}

fn cosine_embedding_rows() -> Vec<Op> {
    vec![
        loss!(
            "cosine_embedding_loss",
            "Tensor input1, Tensor input2, Tensor target, float margin=0.0",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            cosine_embedding_loss,
            "1 - cos where target is 1, max(0, cos - margin) where it is -1"
        )
        .form(
            "torch.cosine_embedding_loss",
            "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=0) -> Tensor",
        )
        .module(
            "CosineEmbeddingLoss(margin=0.0, size_average=None, reduce=None, reduction='mean') = cosine_embedding_loss($0:input1, \
             $1:input2, $2:target, margin, reduction)",
        ),
    ]
}

fn class_margin_rows() -> Vec<Op> {
    vec![
        Op::composite("multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, Any reduction=1) -> \
             Tensor",
            multi_margin,
        )
        .doc("the sum over the other classes of max(0, margin - self[target] + self) ** p, over the number of classes")
        .form(
            "aten.multi_margin_loss.default torch._C._nn.multi_margin_loss",
            "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) -> \
             Tensor",
        )
        .form(
            "torch.nn.functional.multi_margin_loss",
            "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1.0, Tensor? weight=None, Any \
             size_average=None, Any reduce=None, str reduction='mean') -> Tensor",
        )
        .module(
            "MultiMarginLoss(p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction='mean') = \
             multi_margin_loss($0:input, $1:target, p, margin, @weight?, reduction)",
        ),
        Op::composite("multilabel_soft_margin_loss(Tensor self, Tensor target, Tensor? weight=None, Any size_average=None, Any reduce=None, \
             str reduction='mean') -> Tensor",
            multilabel_soft_margin,
        )
        .doc("binary_cross_entropy_with_logits, first averaged over the last dim")
        .spelled("torch.nn.functional.@")
        .module(
            "MultiLabelSoftMarginLoss(weight=None, size_average=None, reduce=None, reduction='mean') = \
             multilabel_soft_margin_loss($0:input, $1:target, @weight?, reduction=reduction)",
        ),
    ]
}

/// Computed in the operands' own dtype, as in torch: exp overflows early in f16.
fn soft_margin(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let negated = b.neg(c.leaf("self")?)?;
    let product = b.mul(&negated, c.leaf("target")?)?;
    let e = b.exp(&product)?;
    let terms = b.log1p(&e)?;
    reduce_terms(b, c, &terms, terms.dtype())
}

/// As in torch, 1e-12 is added to squared lengths.
fn cosine_embedding_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y, target) = (c.leaf("input1")?, c.leaf("input2")?, c.leaf("target")?);
    let dim = target.rank()? as i64;
    if dim > 1 {
        return Err(OpError::shape(
            "0D or 1D target tensor expected, multi-target not supported",
        ));
    }
    let dot = |b: &mut dyn Build, x: &Traced, y: &Traced| -> OpResult<Traced> {
        let product = b.mul(x, y)?;
        b.op(OpId::Sum, [product.into(), ints_val(&[dim])])
    };
    let product = dot(b, x, y)?;
    let mut lengths = vec![];
    for t in [x, y] {
        let square = dot(b, t, t)?;
        lengths.push(b.add(&square, Val::Float(1e-12))?);
    }
    let length = b.mul(&lengths[0], &lengths[1])?;
    let length = b.sqrt(&length)?;
    let cos = b.div(&product, &length)?;
    let similar = b.rsub(&cos, Val::int(1))?;
    let margin = bool_to_float(b, c.get("margin"))?;
    let dissimilar = b.sub(&cos, margin)?;
    let dissimilar = b.op(OpId::Clamp, [dissimilar.into(), Val::int(0)])?;
    let (same, other) = (b.eq(target, Val::int(1))?, b.eq(target, Val::int(-1))?);
    let similar = b.r#where(same, similar, Val::int(0))?;
    let dissimilar = b.r#where(other, dissimilar, Val::int(0))?;
    let terms = b.add(&similar, &dissimilar)?;
    reduce_terms(b, c, &terms, terms.dtype())
}

fn multi_margin(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, target) = (c.leaf("self")?, c.leaf("target")?);
    let p = c.f64("p")?;
    if p != 1.0 && p != 2.0 {
        return Err(OpError::arg("p", "only p == 1 and p == 2 supported"));
    }
    let single = x.rank()? < 2;
    if x.rank()? > 2 || target.rank()? > 1 || !single && target.rank()? != 1 {
        return Err(OpError::shape(format!(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: {}",
            x.ty
        )));
    }
    let classes = x.shape()?.last().cloned().unwrap_or(Dim::Const(1));
    let n = if single { Dim::Const(1) } else { x.shape()?[0].clone() };
    let rows = b.reshape(x, &[n.clone(), classes.clone()])?;
    let target_column = b.reshape(target, &[n, Dim::Const(1)])?;
    let z = class_margins(b, c, &rows, &target_column)?;
    let sums = b.op(OpId::Sum, [z.into(), ints_val(&[1])])?;
    let terms = b.div(&sums, Val::Int(classes))?;
    let terms = match target.rank()? {
        0 => b.squeeze(&terms, 0)?,
        _ => terms,
    };
    reduce_terms(b, c, &terms, terms.dtype())
}

/// For each row and each class but the target's, by how much the class exceeds the target's value less the margin, to the power `p` and
/// times the target's weight.
fn class_margins(b: &mut dyn Build, c: &Call<Traced>, rows: &Traced, target: &Traced) -> OpResult<Traced> {
    let [n, classes] = [0, 1].map(|d| rows.size(d).cloned());
    let (n, classes) = (n?, classes?);
    let correct = b.gather(rows, Val::int(1), target)?;
    let z = b.sub(rows, &correct)?;
    let z = b.add(&z, c.get("margin").clone())?;
    let mut z = b.op(OpId::Clamp, [z.into(), Val::int(0)])?;
    if c.f64("p")? == 2.0 {
        z = b.square(&z)?;
    }
    if let Some(w) = c.opt_leaf("weight") {
        let flat = b.reshape(target, std::slice::from_ref(&n))?;
        let w = b.index_select(w, Val::int(0), flat)?;
        let w = b.unsqueeze(&w, 1)?;
        z = b.mul(&z, &w)?;
    }
    let places = b.arange(Val::int(0), Val::Int(classes))?;
    let is_own = b.eq(&places, target)?;
    b.r#where(is_own, Val::int(0), z)
}

fn multilabel_soft_margin(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, target) = (c.leaf("self")?, c.leaf("target")?);
    let negated = b.neg(x)?;
    let (yes, no) = (b.log_sigmoid(x)?, b.log_sigmoid(&negated)?);
    let rest = b.rsub(target, Val::int(1))?;
    let (yes, no) = (b.mul(target, &yes)?, b.mul(&rest, &no)?);
    let sum = b.add(&yes, &no)?;
    let terms = b.neg(&sum)?;
    let terms = match c.opt_leaf("weight") {
        Some(w) => b.mul(&terms, w)?,
        None => terms,
    };
    let classes = x.shape()?.last().cloned().unwrap_or(Dim::Const(1));
    let sums = b.op(OpId::Sum, [terms.into(), ints_val(&[-1])])?;
    let terms = b.div(&sums, Val::Int(classes))?;
    reduce_terms(b, c, &terms, terms.dtype())
}

fn margin_ranking_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (t, dtype) = widen_tensors(b, &[c.leaf("input1")?, c.leaf("input2")?, c.leaf("target")?])?;
    let d = b.sub(&t[1], &t[0])?;
    let d = b.mul(&t[2], &d)?;
    let d = b.add(&d, c.get("margin").clone())?;
    let terms = b.op(OpId::Clamp, [d.into(), Val::int(0)])?;
    reduce_terms(b, c, &terms, dtype)
}

fn hinge_embedding_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (t, dtype) = widen_tensors(b, &[c.leaf("self")?, c.leaf("target")?])?;
    let (x, target) = (&t[0], &t[1]);
    let margin = bool_to_float(b, c.get("margin"))?;
    let rest = b.rsub(x, margin)?;
    let rest = b.op(OpId::Clamp, [rest.into(), Val::int(0)])?;
    let (not_positive, not_negative) = (b.ne(target, Val::int(1))?, b.ne(target, Val::int(-1))?);
    let left = b.r#where(not_positive, rest, Val::int(0))?;
    let right = b.r#where(not_negative, x, Val::int(0))?;
    let terms = b.add(&left, &right)?;
    reduce_terms(b, c, &terms, dtype)
}

fn triplet_margin_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    // `torch.nn.functional`, recognised by a reduction given as a string, is stricter than ATen.
    let margin = c.f64("margin")?;
    if c.get("reduction").as_str().is_some() && margin <= 0.0 {
        return Err(OpError::arg(
            "margin",
            format!("margin must be greater than 0, got {margin:?}"),
        ));
    }
    let (t, dtype) = widen_tensors(b, &[c.leaf("anchor")?, c.leaf("positive")?, c.leaf("negative")?])?;
    let options = [c.get("p").clone(), c.get("eps").clone()];
    let distance = |b: &mut dyn Build, x: &Traced, y: &Traced| {
        let args = [vec![x.into(), y.into()], options.to_vec()].concat();
        b.op(OpId::PairwiseDistance, args)
    };
    let to_positive = distance(b, &t[0], &t[1])?;
    let mut to_negative = distance(b, &t[0], &t[2])?;
    if c.bool("swap")? {
        let other = distance(b, &t[1], &t[2])?;
        to_negative = b.minimum(&to_negative, &other)?;
    }
    let d = b.sub(&to_positive, &to_negative)?;
    let d = b.add(&d, c.get("margin").clone())?;
    let terms = b.op(OpId::Clamp, [d.into(), Val::int(0)])?;
    reduce_terms(b, c, &terms, dtype)
}

/// Converts a bool tensor that is given for a float tensor.
fn bool_to_float(b: &mut dyn Build, v: &Val<Traced>) -> OpResult<Val<Traced>> {
    match v {
        Val::Leaf(t) if t.dtype() == DType::B8 => b.to_dtype(t, DType::F32).map(Val::Leaf),
        v => Ok(v.clone()),
    }
}
