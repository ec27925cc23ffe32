//! Tests every rule against the interpreter, on random graphs that it matches and random inputs.

use super::simplify::{identity_rules, rules};
use crate::graph::{Arg, Graph, GraphModule};
use crate::interp;
use crate::rewrite::{
    Hole, RewriteOptions, Rule, SPECIAL_FLOATS, SPECIAL_INTS, compare_tensors, complete_graph, rewrite, tolerance,
};
use crate::syntax::ast::RewriteMark;
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, TensorType, Val};
use std::collections::HashMap;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 24
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.next() as usize % items.len()].clone()
    }

    fn ty(&mut self) -> TensorType {
        use DType::*;
        let dtype = self.pick(&[F32, F32, F64, F16, BF16, I64, I32, I16, I8, U8, B8]);
        let shapes: [&[usize]; 6] = [&[2, 3], &[2, 3], &[3], &[], &[1, 3], &[2, 1, 3]];
        TensorType::with_fixed_shape(dtype, self.pick(&shapes))
    }

    /// The type of the input of `rule` that is called `name`. Images have the dims that their pooling op requires, with
    /// or without a batch.
    fn input(&mut self, rule: &str, name: &str) -> TensorType {
        let mut ty = self.ty();
        if name == "image" {
            let spatial = rule.bytes().find(u8::is_ascii_digit).map_or(2, |d| (d - b'0') as usize);
            let shape = [&[2, 3][self.next() as usize % 2..], &[5, 4, 6][..spatial]].concat();
            ty = TensorType::with_fixed_shape(self.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16]), &shape);
        }
        ty
    }

    /// A random literal for the parameter `name`. Parameters that only affect how a result is stored have few choices.
    fn literal(&mut self, name: &str) -> Arg {
        let maybe = |v: Arg| [Val::None, v];
        let ints = |v: &[i64]| Val::List(v.iter().map(|&i| Val::int(i)).collect());
        match name {
            "$kernel" => return self.pick(&[Val::int(2), Val::int(3), ints(&[3, 2]), ints(&[2, 3, 2]), ints(&[3])]),
            "$stride" => return self.pick(&[ints(&[]), Val::int(1), Val::int(2), ints(&[2, 1]), ints(&[1, 2, 1])]),
            "$padding" => return self.pick(&[Val::int(0), Val::int(1), ints(&[1, 0]), ints(&[0, 1, 1])]),
            "$dilation" => return self.pick(&[Val::int(1), Val::int(1), Val::int(2), ints(&[1, 2])]),
            "$ceil" => return Val::Bool(self.next().is_multiple_of(2)),
            "$device" => return self.pick(&maybe(Val::Device("cpu".into()))),
            "$layout" => return self.pick(&maybe(Val::TorchName("strided".into()))),
            "$format" => return self.pick(&[Val::None, Val::TorchName("contiguous_format".into())]),
            "$pin" | "$later" | "$copy" => return Val::Bool(false),
            "$dtype" => {
                use DType::*;
                let types = [F32, F64, F16, BF16, I64, I32].map(Val::DType);
                return self.pick(&[&types[..], &[Val::None]].concat());
            }
            _ => {}
        }
        let mut pool: Vec<Arg> = [0, 1, 1, 2, 3, 4, -1, -2].map(Val::int).to_vec();
        pool.extend([0.0, -0.0, 1.0, 1.0, 2.0, 0.5, -0.5, -1.5, f64::INFINITY, f64::NAN].map(Val::Float));
        pool.extend([&[0][..], &[1], &[0, 1], &[1, 0], &[6], &[3, 2], &[2, 3], &[-1], &[1, 6]].map(ints));
        pool.extend([DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32].map(Val::DType));
        pool.push(Val::Bool(true));
        self.pick(&pool)
    }

    /// Random elements, with special values unless `plain`. Rules that change rounding only get plain ones.
    fn tensor(&mut self, ty: &TensorType, plain: bool) -> Tensor {
        let shape = ty.fixed_shape().unwrap();
        Tensor::from_fn(ty.dtype, &shape, |_| {
            let unit = (self.next() % 1000) as f64 / 1000.0;
            if plain {
                return Scalar::F64(0.5 + unit);
            }
            match (ty.dtype.is_float(), self.next() % 3) {
                (true, 0) => Scalar::F64(unit * 8.0 - 4.0),
                (true, _) => Scalar::F64(self.pick(&SPECIAL_FLOATS)),
                (false, _) => Scalar::Int(DType::I64, self.pick(&SPECIAL_INTS)),
            }
        })
    }
}

/// A graph that the rule may match: its pattern with the holes filled at random.
fn instance(rule: &Rule, random: &mut Random) -> Option<(GraphModule, Vec<TensorType>)> {
    let mut graph = Graph::new();
    let mut filled: HashMap<_, Arg> = HashMap::new();
    let mut types = vec![];
    let common = random.ty();
    let alike = random.next().is_multiple_of(2);
    for (n, hole) in rule.pattern.holes() {
        let arg = match hole {
            Hole::Value(_) => {
                let name = rule.pattern.name(n);
                let mut ty = random.input(&rule.name, name);
                if alike && name != "image" {
                    ty = common.clone();
                }
                if name == "c" {
                    ty.dtype = DType::B8;
                }
                let p = graph.placeholder("p", None);
                graph.meta_mut(p).ty = Some(Val::Leaf(ty.clone()));
                types.push(ty);
                Val::Leaf(p)
            }
            Hole::Literal => random.literal(rule.pattern.name(n)),
            Hole::Rest | Hole::Computed(_) | Hole::Either(_) => panic!("these files have no such holes"),
        };
        filled.insert(n, arg);
    }
    complete_graph(rule, graph, filled).map(|module| (module, types))
}

#[test]
fn every_rule_keeps_what_it_says() {
    let failures: Vec<String> = identity_rules()
        .iter()
        .chain(rules())
        .filter_map(|r| check(r).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Applies one rule to random graphs.
fn check(rule: &Rule) -> Result<(), String> {
    let mut random = Random(7);
    let exact = match rule.mark {
        Some(RewriteMark::Exact) => true,
        Some(RewriteMark::Fast) => false,
        None => return Err(format!("{} says neither exact nor fast", rule.name)),
    };
    let options = RewriteOptions {
        fast: true,
        ..RewriteOptions::default()
    };
    let mut fired = 0;
    for _ in 0..30_000 {
        if fired >= 40 {
            break;
        }
        let Some((module, types)) = instance(rule, &mut random) else {
            continue;
        };
        let mut after = module.clone();
        let wrong = |what: String| format!("{}: {what}\n{}", rule.name, crate::graph::print(&module));
        let report = rewrite(&mut after, std::slice::from_ref(rule), &options).map_err(|d| wrong(format!("{d:?}")))?;
        if report.total() == 0 {
            continue;
        }
        let inputs: Vec<_> = types.iter().map(|t| Val::Leaf(random.tensor(t, !exact))).collect();
        let Ok(want) = interp::run(&module, inputs.clone()) else {
            continue;
        };
        fired += 1;
        let found = interp::run(&after, inputs).map_err(|d| wrong(format!("{d:?}")))?;
        for (w, f) in want.flatten().into_iter().zip(found.flatten()) {
            let (w, f) = (w.as_leaf().unwrap(), f.as_leaf().unwrap());
            compare_tensors(w, f, exact, tolerance([w.dtype()].into_iter())).map_err(wrong)?;
        }
    }
    if fired < 10 {
        return Err(format!("{} fired {fired} times", rule.name));
    }
    Ok(())
}

#[test]
fn the_files_have_no_findings() {
    for (name, text) in super::simplify::FILES {
        let (tree, found) = crate::syntax::parse_text(crate::source::FileId(0), text);
        assert!(found.is_empty(), "{name}: {found:?}");
        let (rules, found) = crate::rewrite::compile(&tree);
        assert!(found.is_empty() && !rules.is_empty(), "{name}: {found:?}");
        assert_eq!(crate::syntax::format(&tree, text), text, "{name} is not formatted");
    }
}
