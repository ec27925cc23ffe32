//! What is known of calls by their op and the types of their arguments. The layers of a network repeat the same calls, so most calls of a
//! graph are checked once, and their expressions are parsed once.

use crate::math::contract::Activation;
use crate::op::{Call, IndexMap, Op, Reduction, Traced};
use crate::scalar::ScalarExpr;
use crate::types::{DType, Dim, Val};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// A call as words: its op, and its arguments with types in place of tensors. Floats are their bits.
pub(in crate::lower) type CallKey = SmallVec<[u64; 32]>;

/// The meaning of a call that its types determine.
#[derive(Clone, Debug)]
pub(in crate::lower) enum KnownMeaning {
    Pointwise(Arc<KnownPointwise>),
    Reduce(Arc<Reduction>),
    View(Arc<KnownView>),
}

/// A call that rearranges elements.
#[derive(Debug)]
pub(in crate::lower) struct KnownView {
    /// The parameter whose elements they are.
    pub operand: usize,
    pub map: IndexMap,
    pub shape: Vec<usize>,
}

/// A pointwise call.
#[derive(Debug)]
pub(in crate::lower) struct KnownPointwise {
    pub expr: Arc<ScalarExpr>,
    /// The parameters that are operands of the expression.
    pub operands: Vec<usize>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub activation: Option<Activation>,
}

/// The calls that have been lowered.
#[derive(Clone, Debug, Default)]
pub(in crate::lower) struct KnownCalls {
    calls: FxHashMap<CallKey, KnownCall>,
    casts: FxHashMap<[DType; 2], Arc<ScalarExpr>>,
}

#[derive(Clone, Debug, Default)]
struct KnownCall {
    is_checked: bool,
    meaning: Option<KnownMeaning>,
}

impl KnownCalls {
    pub(in crate::lower) fn meaning(&self, key: &CallKey) -> Option<KnownMeaning> {
        self.calls.get(key)?.meaning.clone()
    }

    pub(in crate::lower) fn set_meaning(&mut self, key: CallKey, meaning: KnownMeaning) {
        self.calls.entry(key).or_default().meaning = Some(meaning);
    }

    /// Whether inference has no objection to the call.
    pub(in crate::lower) fn is_checked(&self, key: &CallKey) -> bool {
        self.calls.get(key).is_some_and(|c| c.is_checked)
    }

    pub(in crate::lower) fn set_checked(&mut self, key: CallKey) {
        self.calls.entry(key).or_default().is_checked = true;
    }

    /// The operand converted to a dtype; the operand itself if it has that dtype.
    pub(in crate::lower) fn cast(&mut self, from: DType, to: DType) -> Arc<ScalarExpr> {
        let known = self.casts.entry([from, to]);
        let made = known.or_insert_with(|| {
            let mut expr = ScalarExpr::new();
            let x = expr.arg(0, from);
            let root = expr.cast(to, x);
            expr.roots.push(root);
            expr.into()
        });
        made.clone()
    }
}

/// The key of a call. `None` if an argument has no words.
pub(in crate::lower) fn call_key(call: &Call<Traced>) -> Option<CallKey> {
    let mut words = begin_key(call.op);
    let mut leaf = |t: &Traced, words: &mut CallKey| {
        let shape = t.ty.shape.as_ref()?;
        words.extend([0, t.ty.dtype as u64, shape.len() as u64]);
        shape
            .iter()
            .try_for_each(|d| d.as_const().map(|n| words.push(n as u64)))
    };
    let mut encode = |a| encode_arg(a, &mut words, &mut leaf, &Dim::as_const);
    call.args.iter().try_for_each(&mut encode)?;
    Some(words)
}

/// The first word of the keys of an op's calls.
pub(in crate::lower) fn begin_key(op: &'static Op) -> CallKey {
    let mut words = CallKey::new();
    words.push(std::ptr::from_ref(op) as usize as u64);
    words
}

/// Appends the words of a value's type.
pub(in crate::lower) fn encode_type(dtype: DType, shape: &[usize], words: &mut CallKey) {
    words.extend([0, dtype as u64, shape.len() as u64]);
    words.extend(shape.iter().map(|&n| n as u64));
}

/// Appends the words of an argument, with those that `leaf` writes for a leaf. The first word tells the kind, and lists begin with their
/// length, so that no two arguments have the same words.
pub(in crate::lower) fn encode_arg<T>(
    arg: &Val<T>,
    words: &mut CallKey,
    leaf: &mut dyn FnMut(&T, &mut CallKey) -> Option<()>,
    size: &dyn Fn(&Dim) -> Option<i64>,
) -> Option<()> {
    match arg {
        Val::Leaf(t) => leaf(t, words)?,
        Val::None => words.push(1),
        Val::Bool(b) => words.extend([2, u64::from(*b)]),
        Val::Int(d) => words.extend([3, size(d)? as u64]),
        Val::Float(x) => words.extend([4, x.to_bits()]),
        Val::Complex(x, y) => words.extend([5, x.to_bits(), y.to_bits()]),
        Val::DType(d) => words.extend([6, *d as u64]),
        Val::Str(s) => encode_text(7, s, words),
        Val::Device(s) => encode_text(8, s, words),
        Val::TorchName(s) => encode_text(9, s, words),
        Val::List(items) | Val::Tuple(items) => {
            let kind = 10 + u64::from(matches!(arg, Val::Tuple(_)));
            words.extend([kind, items.len() as u64]);
            items.iter().try_for_each(|item| encode_arg(item, words, leaf, size))?;
        }
        _ => return None,
    }
    Some(())
}

/// Appends a word before the words of the argument of parameter `i`. Without it, arguments are in the order of the parameters.
pub(in crate::lower) fn encode_keyword(i: usize, words: &mut CallKey) {
    words.extend([12, i as u64]);
}

/// Appends a word that begins the arguments of a node, without the defaults of others.
pub(in crate::lower) fn begin_node(words: &mut CallKey) {
    words.push(13);
}

fn encode_text(kind: u64, text: &str, words: &mut CallKey) {
    words.extend([kind, text.len() as u64]);
    words.extend(text.bytes().map(u64::from));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::OpId;
    use crate::types::TensorType;

    fn tensor(id: u32, dtype: DType, shape: &[usize]) -> Val<Traced> {
        let ty = TensorType::with_fixed_shape(dtype, shape);
        Val::Leaf(Traced { id, ty })
    }

    fn key(args: Vec<Val<Traced>>) -> Option<CallKey> {
        call_key(&Call {
            op: OpId::Add.op(),
            args,
        })
    }

    #[test]
    fn keys_differ_where_calls_do() {
        let x = || tensor(0, DType::F32, &[2, 3]);
        let calls = [
            vec![x(), x()],
            vec![x(), tensor(0, DType::F32, &[3])],
            vec![x(), tensor(0, DType::F64, &[2, 3])],
            vec![x(), Val::Float(0.0)],
            vec![x(), Val::Float(-0.0)],
            vec![x(), Val::int(0)],
            vec![x(), Val::Bool(false)],
            vec![x(), Val::None],
            vec![x(), Val::List(vec![Val::int(1)]), Val::int(2)],
            vec![x(), Val::List(vec![Val::int(1), Val::int(2)])],
            vec![x(), Val::str("a"), Val::str("")],
            vec![x(), Val::str(""), Val::str("a")],
        ];
        let keys: Vec<CallKey> = calls.into_iter().map(|c| key(c).expect("a key")).collect();
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b), "call {i}");
        }
    }

    #[test]
    fn the_key_is_that_of_types() {
        let call = |id| vec![tensor(id, DType::F32, &[2]), Val::Float(f64::NAN)];
        assert_eq!(key(call(1)), key(call(2)));
        assert_eq!(key(vec![Val::Unknown]), None);
    }
}
