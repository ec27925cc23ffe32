//! Inlining of scalar expressions. Values that a shorter way does not need are not computed: a kernel without conversions may have
//! narrower lanes.

use super::KernelBuilder;
use crate::kernel::{Affine, Value};
use crate::scalar::{Binary, Ref, ScalarExpr, ScalarNode, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;

impl KernelBuilder {
    /// Inlines a scalar expression and returns its roots. `args` are its operands, and `index[d]` is the output's index
    /// along dimension `d`, counted from the last.
    pub fn inline(&mut self, e: &ScalarExpr, args: &[Value], index: &[Affine]) -> Vec<Value> {
        let short = Shortened::new(e);
        let mut map: Vec<Option<Value>> = Vec::with_capacity(e.len());
        for (i, node) in short.nodes.iter().enumerate() {
            let m = |r: Ref| map[r.0 as usize].expect("operands are live and come first");
            let v = short.live[i].then(|| match *node {
                Short::Same(r) => m(r),
                Short::Node(ScalarNode::Arg(n)) => args[n as usize],
                Short::Node(ScalarNode::Index(d)) => self.index(index[d as usize].clone()),
                Short::Node(ScalarNode::Op(op)) => self.op(op.map(m)),
            });
            map.push(v);
        }
        let roots = e.roots.iter();
        roots.map(|r| map[r.0 as usize].expect("roots are live")).collect()
    }
}

/// A value of a shortened expression.
#[derive(Clone, Copy)]
enum Short {
    Node(ScalarNode),
    /// An earlier value.
    Same(Ref),
}

/// An expression with cheaper operations that have the same results.
struct Shortened {
    nodes: Vec<Short>,
    /// Whether a root depends on the value.
    live: Vec<bool>,
}

impl Shortened {
    fn new(e: &ScalarExpr) -> Shortened {
        let (ops, dtypes): (Vec<_>, Vec<_>) = e.nodes().map(|(_, node, dtype)| (node, dtype)).unzip();
        let view = View {
            ops: &ops,
            dtypes: &dtypes,
        };
        let nodes: Vec<Short> = ops
            .iter()
            .map(|n| view.shorten(*n).unwrap_or(Short::Node(*n)))
            .collect();
        let mut live = vec![false; nodes.len()];
        e.roots.iter().for_each(|r| live[r.0 as usize] = true);
        mark_operands(&nodes, &mut live);
        Shortened { nodes, live }
    }
}

fn mark_operands(nodes: &[Short], live: &mut [bool]) {
    for i in (0..nodes.len()).rev() {
        if !live[i] {
            continue;
        }
        match nodes[i] {
            Short::Same(r) => live[r.0 as usize] = true,
            Short::Node(ScalarNode::Op(op)) => op.operands().for_each(|r| live[r.0 as usize] = true),
            Short::Node(_) => {}
        }
    }
}

struct View<'a> {
    ops: &'a [ScalarNode],
    dtypes: &'a [DType],
}

impl View<'_> {
    fn op(&self, r: Ref) -> Option<ScalarOp<Ref>> {
        match self.ops[r.0 as usize] {
            ScalarNode::Op(op) => Some(op),
            _ => None,
        }
    }

    fn shorten(&self, node: ScalarNode) -> Option<Short> {
        let ScalarNode::Op(op) = node else { return None };
        match op {
            ScalarOp::Cast(to @ (DType::F16 | DType::BF16), x) => self.without_widening(to, x),
            ScalarOp::Unary(Unary::IsNan | Unary::IsInf, x) if !self.dtypes[x.0 as usize].is_float() => {
                Some(Short::Node(ScalarNode::Op(ScalarOp::Const(Scalar::Bool(false)))))
            }
            ScalarOp::Select(c, _, y) => self.is_never(c).then_some(Short::Same(y)),
            _ => None,
        }
    }

    /// Whether a condition never holds.
    fn is_never(&self, c: Ref) -> bool {
        let integer = |x: Ref| !self.dtypes[x.0 as usize].is_float();
        matches!(self.op(c), Some(ScalarOp::Unary(Unary::IsNan | Unary::IsInf, x)) if integer(x))
    }

    /// `x` converted to a 16-bit float, where `x` is an operation on sign bits of such floats that were widened. The sign is the same bit
    /// of both formats' numbers, so the operation needs no conversions.
    fn without_widening(&self, to: DType, x: Ref) -> Option<Short> {
        let narrow = |w: Ref| match self.op(w)? {
            ScalarOp::Cast(DType::F32, n) => (self.dtypes[n.0 as usize] == to).then_some(n),
            _ => None,
        };
        let op = match self.op(x)? {
            ScalarOp::Cast(DType::F32, _) => return narrow(x).map(Short::Same),
            ScalarOp::Unary(op @ (Unary::Neg | Unary::Abs), w) => ScalarOp::Unary(op, narrow(w)?),
            ScalarOp::Binary(Binary::Copysign, v, w) => ScalarOp::Binary(Binary::Copysign, narrow(v)?, narrow(w)?),
            _ => return None,
        };
        Some(Short::Node(ScalarNode::Op(op)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Inst, Kernel, Stmt};
    use crate::scalar::text::parse_expr;

    /// The operations of a loop that inlines an expression of operands of this dtype.
    fn inlined(text: &str, dtype: DType, to: DType, count: usize) -> Vec<String> {
        let e = parse_expr(text, &vec![dtype; count]).expect("an expression");
        let mut k = KernelBuilder::new("k");
        let inputs: Vec<_> = (0..count).map(|i| k.input(&format!("x{i}"), dtype, &[8])).collect();
        let y = k.output("y", to, &[8]);
        k.parallel_vector(8, |k, i| {
            let args: Vec<_> = inputs.iter().map(|&b| k.load(b, i)).collect();
            let roots = k.inline(&e, &args, &[]);
            k.store(y, i, roots[0]);
        });
        operations(&k.finish().expect("a kernel"))
    }

    fn operations(k: &Kernel) -> Vec<String> {
        let Some(Stmt::Loop(l)) = k.body.last() else {
            return vec![];
        };
        let ops = l.body.iter().filter_map(|s| match s {
            Stmt::Let(_, Inst::Op(op)) => Some(format!("{op:?}")),
            _ => None,
        });
        ops.map(|text| text.split('(').take(2).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn signs_of_halves_change_without_conversions() {
        for d in [DType::F16, DType::BF16] {
            let name = d.to_string();
            for (text, count, want) in [
                ("{d}.cast(abs(f32.cast(a0)))", 1, "Unary Abs, Value"),
                ("{d}.cast(neg(f32.cast(a0)))", 1, "Unary Neg, Value"),
                (
                    "{d}.cast(copysign(f32.cast(a0), f32.cast(a1)))",
                    2,
                    "Binary Copysign, Value",
                ),
            ] {
                assert_eq!(inlined(&text.replace("{d}", &name), d, d, count), [want], "{text}");
            }
            assert_eq!(inlined(&format!("{name}.cast(f32.cast(a0))"), d, d, 1), [""; 0]);
        }
    }

    #[test]
    fn other_conversions_remain() {
        let negated = inlined("bf16.cast(neg(f32.cast(a0)))", DType::F16, DType::BF16, 1);
        assert_eq!(negated.len(), 3, "the formats differ: {negated:?}");
        let floor = inlined("f16.cast(floor(f32.cast(a0)))", DType::F16, DType::F16, 1);
        assert_eq!(floor.len(), 3, "{floor:?}");
    }

    #[test]
    fn integers_are_never_nan() {
        assert_eq!(
            inlined("select(isnan(a0), i64(0), a0)", DType::I64, DType::I64, 1),
            [""; 0]
        );
        assert_eq!(
            inlined("select(isnan(a0), f32(0.0), a0)", DType::F32, DType::F32, 1).len(),
            3
        );
    }
}
