//! Values of other types: views and conversions that give a value the type that a call needs, and other sizes for a call.

use fxc::graph::{Arg, Graph, NodeId};
use fxc::internals::tensor::SplitMix;
use fxc::types::{DType, Val};

/// The sizes that replace those of a template: none, one, primes, powers of two, and neighbours of the lanes of vectors.
const SIZES: [usize; 16] = [0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33];

/// How a call differs from its template.
pub struct Changes {
    size: Option<(usize, usize)>,
    float: Option<DType>,
    int: Option<DType>,
    /// Whether to change an argument that is not a tensor.
    pub literals: bool,
}

impl Changes {
    /// Random changes for a call on tensors of these types.
    pub fn random(types: &[(DType, Vec<usize>)], r: &mut SplitMix) -> Changes {
        let sizes: Vec<usize> = types.iter().flat_map(|(_, s)| s.iter().copied()).collect();
        let size = (!sizes.is_empty() && r.one_in(2)).then(|| (r.pick(&sizes), r.pick(&SIZES)));
        let float = match r.next_below(8) {
            0..2 => Some(DType::F32),
            2 => Some(r.pick(&[DType::F64, DType::F16, DType::BF16])),
            _ => None,
        };
        let int = r
            .one_in(8)
            .then(|| r.pick(&[DType::I64, DType::I32, DType::I16, DType::I8, DType::U8]));
        Changes {
            size,
            float,
            int,
            literals: r.one_in(5),
        }
    }

    /// The type of an input.
    pub fn of_type(&self, (dtype, shape): &(DType, Vec<usize>)) -> (DType, Vec<usize>) {
        let other = match dtype {
            DType::F32 | DType::F64 | DType::F16 | DType::BF16 => self.float,
            d if d.is_int() => self.int,
            _ => None,
        };
        let shape = shape.iter().map(|&n| self.of_size(n)).collect();
        (other.unwrap_or(*dtype), shape)
    }

    fn of_size(&self, n: usize) -> usize {
        match self.size {
            Some((from, to)) if from == n => to,
            _ => n,
        }
    }

    /// An argument that is not a tensor: sizes in lists follow those of the inputs.
    pub fn of_argument(&self, v: &Arg, in_list: bool) -> Arg {
        match v {
            Val::List(items) => Val::List(items.iter().map(|i| self.of_argument(i, true)).collect()),
            Val::Int(_) if in_list => match v.as_int().and_then(|i| usize::try_from(i).ok()) {
                Some(n) => Val::int(self.of_size(n) as i64),
                None => v.clone(),
            },
            v => v.clone(),
        }
    }
}

/// A neighbour of a literal.
pub fn change_literal(v: &Arg, r: &mut SplitMix) -> Arg {
    match v {
        Val::Bool(b) => Val::Bool(!b),
        Val::Float(x) => Val::Float(r.pick(&[*x + 1.0, -x, x * 0.5, 0.0, 1.0, 1e-3])),
        Val::Int(_) => match v.as_int() {
            Some(i) => Val::int(r.pick(&[i.wrapping_add(1), i.wrapping_sub(1), i.wrapping_neg(), 0, 1, 2, -1])),
            None => v.clone(),
        },
        Val::List(items) if !items.is_empty() => {
            let at = r.next_below(items.len());
            let change =
                |(i, v): (usize, &Arg), r: &mut SplitMix| if i == at { change_literal(v, r) } else { v.clone() };
            Val::List(items.iter().enumerate().map(|item| change(item, r)).collect())
        }
        v => v.clone(),
    }
}

fn ints(v: impl IntoIterator<Item = usize>) -> Arg {
    Val::List(v.into_iter().map(|i| Val::int(i as i64)).collect())
}

fn call(g: &mut Graph, target: &str, args: Vec<Arg>) -> NodeId {
    g.call_function(target, args, vec![])
}

/// Adds views and conversions that make a value of type `to` from `x` of type `from`; `None` if it has no elements and `to`
/// has.
pub fn adapt(
    g: &mut Graph,
    x: NodeId,
    from: (DType, &[usize]),
    to: (DType, &[usize]),
    r: &mut SplitMix,
) -> Option<NodeId> {
    let (a, b) = (from.1, to.1);
    let (from_count, to_count): (usize, usize) = (a.iter().product(), b.iter().product());
    if from_count == 0 && to_count > 0 {
        return None;
    }
    let mut x = x;
    if from.0 != to.0 {
        x = g.call_method("to", vec![Val::Leaf(x), Val::DType(to.0)], vec![]);
    }
    if a == b {
        return Some(x);
    }
    let order = permutation(a, b).filter(|_| !r.one_in(4));
    if let Some(order) = order {
        return Some(call(g, "aten.permute.default", vec![Val::Leaf(x), ints(order)]));
    }
    if expands(a, b) && !r.one_in(4) {
        return Some(call(
            g,
            "aten.expand.default",
            vec![Val::Leaf(x), ints(b.iter().copied())],
        ));
    }
    if a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a >= b) {
        return Some(slice_dims(g, x, a, b, r));
    }
    if from_count != to_count {
        x = resize(g, x, from_count, to_count);
    }
    Some(call(
        g,
        "aten.reshape.default",
        vec![Val::Leaf(x), ints(b.iter().copied())],
    ))
}

/// The first elements of `x`, repeated if there are too few.
fn resize(g: &mut Graph, x: NodeId, from: usize, to: usize) -> NodeId {
    let mut flat = call(g, "aten.reshape.default", vec![Val::Leaf(x), ints([from])]);
    if from < to {
        flat = call(
            g,
            "aten.repeat.default",
            vec![Val::Leaf(flat), ints([to.div_ceil(from)])],
        );
    }
    call(
        g,
        "aten.slice.Tensor",
        vec![Val::Leaf(flat), Val::int(0), Val::int(0), Val::int(to as i64)],
    )
}

/// Every other element, or some in a row, along each dim that is too large.
fn slice_dims(g: &mut Graph, x: NodeId, from: &[usize], to: &[usize], r: &mut SplitMix) -> NodeId {
    let mut x = x;
    for (d, (&a, &b)) in from.iter().zip(to).enumerate().filter(|(_, (a, b))| a != b) {
        let step = if b > 0 && a >= 2 * b { 1 + r.next_below(2) } else { 1 };
        let start = r.next_below(a - (b.max(1) - 1) * step);
        let stop = if b == 0 { start } else { start + (b - 1) * step + 1 };
        let numbers = [d, start, stop, step].map(|i| Val::int(i as i64));
        x = call(g, "aten.slice.Tensor", [vec![Val::Leaf(x)], numbers.to_vec()].concat());
    }
    x
}

/// The order of dims that makes shape `b` of shape `a`.
fn permutation(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = vec![];
    for n in b {
        order.push((0..a.len()).find(|i| a[*i] == *n && !order.contains(i))?);
    }
    (a.len() == b.len()).then_some(order)
}

/// Whether shape `a` broadcasts to shape `b`.
fn expands(a: &[usize], b: &[usize]) -> bool {
    a.len() <= b.len() && a.iter().rev().zip(b.iter().rev()).all(|(a, b)| a == b || *a == 1)
}
