//! Einstein summation: products and sums of tensors by labelled dims.

use crate::op::{Build, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val, promote_types};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
            |b, c| einsum(b, c.str("equation")?, &c.leaves("tensors")?).map(Val::Leaf),
        )
        .aliasing()
        .doc("sums of products over the labels that are not in the result: 'bij,bjk->bik'")
        .spelled("aten.@ torch.@ torch.functional.@"),
    ]
}

/// The label of a dim: a letter, or the n-th last dim of the ellipsis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum DimLabel {
    Ellipsis(usize),
    Letter(char),
}

impl std::fmt::Display for DimLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DimLabel::Ellipsis(_) => f.write_str("..."),
            DimLabel::Letter(c) => write!(f, "{c}"),
        }
    }
}

/// A tensor with one label per dim.
#[derive(Clone)]
struct Term {
    tensor: Traced,
    labels: Vec<DimLabel>,
}

fn einsum_error<T>(problem: impl Into<String>) -> OpResult<T> {
    Err(OpError::arg("equation", format!("einsum(): {}", problem.into())))
}

/// Parses the labels of one part of the equation. An ellipsis covers the dims of `rank` that have no letter.
fn parse_labels(text: &str, rank: Option<usize>, ellipsis: usize, operand: usize) -> OpResult<Vec<DimLabel>> {
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let spread = rank.map_or(ellipsis, |r| r.saturating_sub(letters));
    let mut out = vec![];
    let mut rest = text;
    let mut seen = false;
    while let Some(c) = rest.chars().next() {
        if let Some(r) = rest.strip_prefix("...") {
            if seen {
                return einsum_error("found more than one ellipsis in an operand");
            }
            seen = true;
            out.extend((0..spread).rev().map(DimLabel::Ellipsis));
            rest = r;
            continue;
        }
        if !c.is_ascii_alphabetic() {
            return einsum_error(format!("invalid subscript given: {c}, subscripts must be in [a-zA-Z]"));
        }
        out.push(DimLabel::Letter(c));
        rest = &rest[c.len_utf8()..];
    }
    if rank.is_some_and(|r| r != out.len()) {
        let r = rank.unwrap_or(0);
        return einsum_error(format!(
            "the number of subscripts in the equation ({letters}) does not match the number of dimensions ({r}) for operand \
             {operand} and no ellipsis was given"
        ));
    }
    Ok(out)
}

/// The operands with their labels, without repeated labels.
fn parse_terms(b: &mut dyn Build, parts: &[&str], tensors: &[&Traced]) -> OpResult<Vec<Term>> {
    let mut terms = vec![];
    for (i, (p, t)) in parts.iter().zip(tensors).enumerate() {
        let labels = parse_labels(p, Some(t.rank()?), 0, i)?;
        let tensor = (*t).clone();
        terms.push(take_diagonals(b, Term { tensor, labels })?);
    }
    Ok(terms)
}

/// The maximum number of dims that an ellipsis covers.
fn ellipsis_rank(terms: &[Term]) -> usize {
    let widest = terms
        .iter()
        .flat_map(|t| &t.labels)
        .filter(|l| matches!(l, DimLabel::Ellipsis(_)))
        .max();
    widest.map_or(0, |l| if let DimLabel::Ellipsis(n) = l { n + 1 } else { 0 })
}

fn einsum(b: &mut dyn Build, equation: &str, tensors: &[&Traced]) -> OpResult<Traced> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (&text[..], None),
    };
    let parts: Vec<&str> = left.split(',').collect();
    if parts.len() != tensors.len() {
        let quantity = if tensors.len() < parts.len() { "fewer" } else { "more" };
        return einsum_error(format!(
            "{quantity} operands were provided than specified in the equation"
        ));
    }
    let mut terms = parse_terms(b, &parts, tensors)?;
    let spread = ellipsis_rank(&terms);
    let out = match right {
        Some(r) => parse_labels(r, None, spread, 0)?,
        None => implicit_output(left, spread),
    };
    check_output(&out, &terms)?;
    check_sizes(&terms)?;
    let mut acc = terms.remove(0);
    while !terms.is_empty() {
        let next = terms.remove(0);
        let needed = |l: &DimLabel| out.contains(l) || terms.iter().any(|t| t.labels.contains(l));
        acc = contract_pair(b, acc, next, &needed)?;
    }
    // The remaining labels are summed as by `sum`: integers in i64.
    acc = sum_unneeded(b, acc, &|l| out.contains(l))?;
    let order: Vec<usize> = out
        .iter()
        .filter_map(|l| acc.labels.iter().position(|x| x == l))
        .collect();
    b.permute(&acc.tensor, &order)
}

/// Rejects output labels that occur twice or in no operand.
fn check_output(out: &[DimLabel], terms: &[Term]) -> OpResult<()> {
    for (i, l) in out.iter().enumerate() {
        if out[..i].contains(l) {
            return einsum_error(format!("output subscript {l} appears more than once in the output"));
        }
        if !terms.iter().any(|t| t.labels.contains(l)) {
            return einsum_error(format!(
                "output subscript {l} does not appear in the equation for any input operand"
            ));
        }
    }
    Ok(())
}

/// The output of an equation without an arrow: the ellipsis, then the letters that occur once, in alphabetical order.
fn implicit_output(left: &str, spread: usize) -> Vec<DimLabel> {
    let mut letters: Vec<char> = left.chars().filter(char::is_ascii_alphabetic).collect();
    letters.sort_unstable();
    let once = |c: &char| letters.iter().filter(|x| *x == c).count() == 1;
    let single = letters.iter().copied().filter(once).map(DimLabel::Letter);
    (0..spread).rev().map(DimLabel::Ellipsis).chain(single).collect()
}

fn check_sizes(terms: &[Term]) -> OpResult<()> {
    let mut known: Vec<(DimLabel, Dim)> = vec![];
    for (i, t) in terms.iter().enumerate() {
        for (l, d) in t.labels.iter().zip(t.tensor.shape()?) {
            match known.iter_mut().find(|(k, _)| k == l) {
                None => known.push((*l, d.clone())),
                Some((_, k)) if *k == Dim::Const(1) => *k = d.clone(),
                Some((_, k)) => {
                    if *d != Dim::Const(1) && k.sub(d).as_const().is_some_and(|x| x != 0) {
                        return einsum_error(format!(
                            "subscript {l} has size {d} for operand {i} which does not broadcast with previously seen size {k}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

/// A label that occurs twice in an operand selects its diagonal.
fn take_diagonals(b: &mut dyn Build, mut t: Term) -> OpResult<Term> {
    loop {
        let twice =
            (0..t.labels.len()).find_map(|j| t.labels[..j].iter().position(|l| *l == t.labels[j]).map(|i| (i, j)));
        let Some((i, j)) = twice else { return Ok(t) };
        let shape = t.tensor.shape()?;
        if shape[i].sub(&shape[j]).as_const().is_some_and(|d| d != 0) {
            return einsum_error(format!(
                "subscript is repeated for an operand but the sizes don't match, {} != {}",
                shape[j], shape[i]
            ));
        }
        let args = [(&t.tensor).into(), Val::int(0), Val::int(i as i64), Val::int(j as i64)];
        t.tensor = b.op(OpId::Diagonal, args)?;
        let label = t.labels[i];
        t.labels.remove(j);
        t.labels.remove(i);
        t.labels.push(label);
    }
}

/// The term for `tensor`, which is `t` without the dims `dims`.
fn without_dims(t: Term, tensor: Traced, dims: &[usize]) -> Term {
    let labels = t.labels.into_iter().enumerate().filter(|(i, _)| !dims.contains(i));
    let labels = labels.map(|(_, l)| l).collect();
    Term { tensor, labels }
}

/// A list of dims as an argument.
fn dims_arg(dims: &[usize]) -> Val<Traced> {
    Val::List(dims.iter().map(|&d| Val::int(d as i64)).collect())
}

/// Sums over the labels that are not needed.
fn sum_unneeded(b: &mut dyn Build, t: Term, needed: &dyn Fn(&DimLabel) -> bool) -> OpResult<Term> {
    let dims: Vec<usize> = (0..t.labels.len()).filter(|&i| !needed(&t.labels[i])).collect();
    if dims.is_empty() {
        return Ok(t);
    }
    let tensor = b.op(OpId::Sum, [(&t.tensor).into(), dims_arg(&dims), Val::Bool(false)])?;
    Ok(without_dims(t, tensor, &dims))
}

/// Removes the labels of an operand that are not needed: dims of size 1 are squeezed, others are summed.
fn reduce_unneeded(b: &mut dyn Build, t: Term, needed: &dyn Fn(&DimLabel) -> bool) -> OpResult<Term> {
    let shape = t.tensor.shape()?;
    let goes = |&i: &usize| !needed(&t.labels[i]) && shape[i] == Dim::Const(1);
    let units: Vec<usize> = (0..t.labels.len()).filter(goes).collect();
    let t = squeeze_dims(b, t, &units)?;
    sum_unneeded(b, t, needed)
}

/// Squeezes dims of size 1.
fn squeeze_dims(b: &mut dyn Build, t: Term, dims: &[usize]) -> OpResult<Term> {
    if dims.is_empty() {
        return Ok(t);
    }
    let tensor = b.op(OpId::Squeeze, [(&t.tensor).into(), dims_arg(dims)])?;
    Ok(without_dims(t, tensor, dims))
}

/// Squeezes dims of size 1 whose label has another size in the other operand.
fn without_units(b: &mut dyn Build, t: Term, other: &Term) -> OpResult<Term> {
    let (shape, theirs) = (t.tensor.shape()?.to_vec(), other.tensor.shape()?);
    let one = Dim::Const(1);
    let drops = |i: usize| {
        let position = other.labels.iter().position(|l| *l == t.labels[i]);
        shape[i] == one && position.is_some_and(|j| theirs[j] != one)
    };
    let dims: Vec<usize> = (0..t.labels.len()).filter(|&i| drops(i)).collect();
    squeeze_dims(b, t, &dims)
}

/// The product of two operands, summed over the labels that are not needed any more, as one batched matrix product.
fn contract_pair(b: &mut dyn Build, x: Term, y: Term, needed: &dyn Fn(&DimLabel) -> bool) -> OpResult<Term> {
    let (x0, y0) = (x.clone(), y.clone());
    let x = without_units(b, x, &y0)?;
    let y = without_units(b, y, &x0)?;
    let mut x = reduce_unneeded(b, x, &|l| needed(l) || y.labels.contains(l))?;
    let mut y = reduce_unneeded(b, y, &|l| needed(l) || x.labels.contains(l))?;
    let shared = |l: &&DimLabel| y.labels.contains(l);
    let pick = |t: &Term, f: &dyn Fn(&DimLabel) -> bool| t.labels.iter().copied().filter(f).collect::<Vec<_>>();
    let batch = pick(&x, &|l| y.labels.contains(l) && needed(l));
    let inner = pick(&x, &|l| y.labels.contains(l) && !needed(l));
    let rows = pick(&x, &|l| !shared(&l));
    let columns = pick(&y, &|l| !x.labels.contains(l));
    // Sums of integers are i64, so the dtypes may differ. A product without a sum promotes; one with a sum requires
    // equal dtypes.
    if label_sizes(&x, &inner)?.iter().all(|n| *n == Dim::Const(1)) {
        let dtypes = (x.tensor.dtype(), y.tensor.dtype());
        let dtype = promote_types(dtypes.0, dtypes.1).unwrap_or(dtypes.0);
        x.tensor = b.to_dtype(&x.tensor, dtype)?;
        y.tensor = b.to_dtype(&y.tensor, dtype)?;
    }
    let a = arrange_groups(b, &x, [&batch, &rows, &inner])?;
    let c = arrange_groups(b, &y, [&batch, &inner, &columns])?;
    let out = if inner.is_empty() {
        // As in torch: a product without a sum.
        b.mul(&a, &c)?
    } else if batch.is_empty() {
        let (a, c) = (b.squeeze(&a, 0)?, b.squeeze(&c, 0)?);
        b.mm(&a, &c)?
    } else {
        b.bmm(&a, &c)?
    };
    let mut shape = label_sizes(&x, &batch)?;
    shape.extend(label_sizes(&x, &rows)?);
    shape.extend(label_sizes(&y, &columns)?);
    Ok(Term {
        tensor: b.reshape(&out, &shape)?,
        labels: [batch, rows, columns].concat(),
    })
}

fn label_sizes(t: &Term, labels: &[DimLabel]) -> OpResult<Vec<Dim>> {
    let shape = t.tensor.shape()?;
    Ok(labels
        .iter()
        .filter_map(|l| t.labels.iter().position(|x| x == l))
        .map(|i| shape[i].clone())
        .collect())
}

/// The operand as a tensor of three dims, one for each group of labels.
fn arrange_groups(b: &mut dyn Build, t: &Term, groups: [&[DimLabel]; 3]) -> OpResult<Traced> {
    let order: Vec<usize> = groups
        .iter()
        .copied()
        .flatten()
        .filter_map(|l| t.labels.iter().position(|x| x == l))
        .collect();
    let y = b.permute(&t.tensor, &order)?;
    let shape = groups
        .iter()
        .map(|g| Ok(label_sizes(t, g)?.iter().fold(Dim::Const(1), |p, d| p.mul(d))))
        .collect::<OpResult<Vec<_>>>()?;
    b.reshape(&y, &shape)
}
