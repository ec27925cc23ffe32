//! Products of quantized operands, as products of their integers.
//!
//! With `x = (p - z) * s` and `w = (q - y) * t`, where `s` is a number and `t` is one for each output channel,
//! `x · w + b` is `((p - z) · (q - y)) * (s * t) + b`. The product's operands are then integers that bf16 represents, so
//! units that multiply bf16 compute it in a fraction of the time, without rounding ([`MatMul::small_integers`]). The
//! scales follow as an epilogue. They are multiplied once a result and not once an operand, so results differ by the
//! rounding of f32.
//!
//! [`MatMul::small_integers`]: crate::math::contract::MatMul::small_integers

use super::ir::{Def, Tir, ValueId};
use crate::op::{Contraction, IndexMap, OpResult};
use crate::scalar::{Binary, Ref, ScalarExpr, ScalarNode, ScalarOp};
use crate::target::{PairUnit, thread_target};
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

/// Moves the scales of quantized operands after the products, for targets that multiply bf16 faster than f32.
pub(super) fn move_scales(tir: &mut Tir) -> OpResult<()> {
    if thread_target().pair_unit() == PairUnit::Widening {
        return Ok(());
    }
    tir.redefine_values(|tir, v| match QuantizedProduct::find(tir, v) {
        Some(product) => product.replace(tir, v),
        None => Ok(()),
    })
}

/// A scale of an operand: one number.
#[derive(Clone, Copy)]
enum Scale {
    Number(f32),
    /// A value of one element.
    Value(ValueId),
}

/// A contraction of quantized operands.
struct QuantizedProduct {
    contraction: Contraction,
    /// The input's integers, minus the zero point.
    input: ValueId,
    scale: Scale,
    /// The weight's integers, minus the zero points.
    weight: Tensor,
    /// The weight's scale for each output channel.
    scales: Vec<f32>,
    bias: Option<ValueId>,
}

impl QuantizedProduct {
    fn find(tir: &Tir, v: ValueId) -> Option<QuantizedProduct> {
        let Def::Contract { args, contraction } = &tir.value(v).def else {
            return None;
        };
        if tir.value(v).dtype != DType::F32 {
            return None;
        }
        let (input, weight, bias) = match contraction {
            Contraction::MatMul(p) if p.b_transposed && p.alpha == 1.0 && p.beta == 1.0 => (p.a, p.b, p.bias),
            Contraction::Conv(c) if c.groups == 1 && !c.transposed => (c.input, c.weight, c.bias),
            _ => return None,
        };
        let Def::Constant(weight) = &tir.value(args[weight]).def else {
            return None;
        };
        let quantized = weight.quantized().filter(|q| q.scale_run(1) == q.shape[1])?;
        let scales = (0..quantized.shape[0]).map(|i| quantized.scale_at(i, 0)).collect();
        let shape = weight.shape();
        let is_matrix = matches!(contraction, Contraction::Conv(_)) || shape.len() == 2;
        let weight = quantized.without_scale().into_tensor(shape).filter(|_| is_matrix)?;
        let (input, scale) = split_scale(tir, args[input])?;
        let is_small = |v: ValueId| tir.integer_range(v).is_some_and(|r| r.is_exact_in_bf16());
        Some(QuantizedProduct {
            contraction: contraction.clone(),
            input,
            scale,
            weight,
            scales,
            bias: bias.map(|b| args[b]),
        })
        .filter(|p| is_small(p.input))
    }

    /// Redefines `v` as the scaled product of the integers.
    fn replace(mut self, tir: &mut Tir, v: ValueId) -> OpResult<()> {
        let shape = tir.value(v).shape.clone();
        tir.name = tir.value(v).name.clone();
        // Channels are the second dim of a convolution's result, and the last one of a matrix.
        let spatial = match &mut self.contraction {
            Contraction::MatMul(p) => {
                (p.a, p.b, p.bias) = (0, 1, None);
                0
            }
            Contraction::Conv(c) => {
                (c.input, c.weight, c.bias) = (0, 1, None);
                shape.len() - 2
            }
        };
        let weight = tir.push(DType::F32, self.weight.shape(), Def::Constant(self.weight.clone()))?;
        let product = Def::Contract {
            args: vec![self.input, weight],
            contraction: self.contraction.clone(),
        };
        let product = tir.push(DType::F32, &shape, product)?;
        let along_channels = [vec![self.scales.len()], vec![1; spatial]].concat();
        let scales = self.channel_scales(&along_channels);
        let mut args = vec![product, tir.push(DType::F32, &along_channels, Def::Constant(scales))?];
        if let Scale::Value(s) = self.scale {
            args.push(tir.view(s, IndexMap::Reshape, &[])?);
        }
        if let Some(bias) = self.bias {
            args.push(match spatial {
                0 => bias,
                _ => tir.view(bias, IndexMap::Reshape, &along_channels)?,
            });
        }
        let dtypes: Vec<DType> = args.iter().map(|&a| tir.value(a).dtype).collect();
        let expr = scaled(&dtypes, self.bias.is_some());
        tir.values[v.0 as usize].def = Def::Pointwise { expr, args };
        Ok(())
    }

    /// The factor of each channel of the product, as far as it is constant.
    fn channel_scales(&self, shape: &[usize]) -> Tensor {
        let factor = match self.scale {
            Scale::Number(s) => s,
            Scale::Value(_) => 1.0,
        };
        let scales: Vec<f32> = self.scales.iter().map(|t| factor * t).collect();
        Tensor::from_slice(shape, &scales)
    }
}

/// The f32 product of operands of these dtypes, except the last one if `bias` is set, which is added.
fn scaled(dtypes: &[DType], bias: bool) -> ScalarExpr {
    let mut expr = ScalarExpr::new();
    let arg = |(i, &dtype): (usize, &DType)| {
        let arg = expr.arg(i as u32, dtype);
        expr.cast(DType::F32, arg)
    };
    let args: Vec<Ref> = dtypes.iter().enumerate().map(arg).collect();
    let (factors, last) = args.split_at(dtypes.len() - bias as usize);
    let mut root = factors[0];
    for &f in &factors[1..] {
        root = expr.binary(Binary::Mul, root, f);
    }
    if let [bias] = *last {
        root = expr.binary(Binary::Add, root, bias);
    }
    expr.roots.push(root);
    expr
}

/// The value that `v` is a multiple of, and the factor.
fn split_scale(tir: &Tir, v: ValueId) -> Option<(ValueId, Scale)> {
    let Def::Pointwise { expr, args } = &tir.value(v).def else {
        return None;
    };
    let &[root] = &expr.roots[..] else { return None };
    let ScalarNode::Op(ScalarOp::Binary(Binary::Mul, x, y)) = expr.node(root) else {
        return None;
    };
    let whole = |r: Ref| match expr.node(r) {
        ScalarNode::Arg(i) => Some(args[i as usize]).filter(|&a| tir.value(a).shape == tir.value(v).shape),
        _ => None,
    };
    let single = |i: u32| Some(Scale::Value(args[i as usize])).filter(|_| tir.value(args[i as usize]).numel() == 1);
    let number = |r: Ref| match expr.node(r) {
        ScalarNode::Op(ScalarOp::Const(Scalar::F32(s))) => Some(Scale::Number(s)),
        ScalarNode::Arg(i) => single(i),
        ScalarNode::Op(ScalarOp::Cast(DType::F32, x)) => match expr.node(x) {
            ScalarNode::Arg(i) => single(i),
            _ => None,
        },
        _ => None,
    };
    let split = |x, y| Some((whole(x)?, number(y)?));
    split(x, y).or_else(|| split(y, x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Target, with_target};

    /// Inputs and weights with and without scales that are values.
    #[test]
    fn scales_follow_the_product_of_integers() {
        let text = "\
%q: u8[2, 64] = input 0
%s: f32[] = input 1
%b: f32[64] = input 2
%f: f32[2, 64] = map(%q) { sub(f32.cast(a0), f32(3.0)) }
%x: f32[2, 64] = map(%f) { mul(a0, f32(0.5)) }
%y: f32[2, 64] = map(%f, %s) { mul(a0, a1) }
%w: f32[64, 64] = constant
%m: f32[2, 64] = matmul(%x, %w, %b) transpose_b=1
%n: f32[2, 64] = matmul(%y, %w) transpose_b=1
return (%m, %n)
";
        let mut tir = Tir::parse(text).unwrap();
        let w = tir
            .values
            .iter()
            .position(|v| matches!(v.def, Def::Constant(_)))
            .unwrap();
        tir.values[w].def = Def::Constant(quantized_matrix());
        let moved = |target: Target| {
            let mut tir = tir.clone();
            with_target(target, || move_scales(&mut tir)).unwrap();
            tir.remove_unused_values().unwrap();
            tir.to_string()
        };
        assert_eq!(moved(Target::parse("x86-64-v2").unwrap()), tir.to_string());
        if Target::native().pair_unit() != PairUnit::Widening {
            let text = moved(Target::native());
            let products = text
                .lines()
                .filter(|l| l.contains("matmul(") || l.contains("map(%m") || l.contains("map(%n"));
            assert_eq!(
                products.collect::<Vec<_>>(),
                [
                    "%m#2: f32[2, 64] = matmul(%f, %m#1) transpose_b=1",
                    "%m#3: f32[2, 64] = map(%m#2, %m, %b) { add(mul(a0, a1), a2) }",
                    "%n#2: f32[2, 64] = matmul(%f, %n#1) transpose_b=1",
                    "%n#3: f32[2, 64] = map(%n#2, %n, %s) { mul(mul(a0, a1), a2) }",
                ]
            );
        }
    }

    /// 64 rows of i8, each with a scale of its own.
    fn quantized_matrix() -> Tensor {
        use crate::tensor::{BlockValues, Quantized};
        let integers: Vec<i8> = (0..64 * 64).map(|i| (i % 7) as i8 - 3).collect();
        let scales: Vec<f32> = (0..64).map(|i| 0.25 * (1 + i) as f32).collect();
        let quantized = Quantized {
            integers: Tensor::from_slice(&[64, 64], &integers),
            strides: [64, 1],
            shape: [64, 64],
            zero: None,
            scale: Some(BlockValues {
                values: Tensor::from_slice(&[64], &scales),
                offset: 0,
                block: [1, 64],
                strides: [1, 0],
            }),
            dtype: DType::F32,
        };
        quantized.into_tensor(&[64, 64]).unwrap()
    }
}
