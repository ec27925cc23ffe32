//! Matches arguments of the pattern with those of the graph: literals, lists, slices, holes and their types.

use super::text::{show_value, shown_literal, signed_name};
use super::{Goal, GoalPart, Matcher, SearchState};
use crate::graph::NodeId;
use crate::infer::{self, Operand};
use crate::rewrite::pattern::Hole;
use crate::rewrite::view::is_same_value;
use crate::types::{Dim, TensorType, Type, Val};

impl<'a> Matcher<'a> {
    /// The alternative lists of goals under which the pattern's `arg` matches `value`.
    pub(super) fn match_arg(
        &mut self,
        state: &mut SearchState<'a>,
        arg: &'a Val<NodeId>,
        value: Val<Operand>,
    ) -> Option<Vec<Vec<Goal<'a>>>> {
        let pair = |a: &'a Val<NodeId>, v: &Val<Operand>| (GoalPart::Arg(a), v.clone());
        let met = Some(vec![]);
        match (arg, &value) {
            (Val::Leaf(p), _) => self.match_leaf(state, *p, value),
            (Val::List(a) | Val::Tuple(a), Val::List(v) | Val::Tuple(v)) => self.match_items(state, a, v),
            (Val::Slice(a), Val::Slice(v)) | (Val::Range(a), Val::Range(v)) => {
                Some(vec![a.iter().zip(v.iter()).map(|(a, v)| pair(a, v)).collect()])
            }
            (Val::Dict(a), Val::Dict(v)) if a.len() == v.len() => {
                let mut goals = vec![];
                for ((k, a), (l, v)) in a.iter().zip(v) {
                    if !is_same_value(&k.map(|_| ()), &l.map(|_| ())) {
                        return self.fail(state, || "the keys of a dict differ".into());
                    }
                    goals.push(pair(a, v));
                }
                Some(vec![goals])
            }
            (Val::Int(d), Val::Int(_)) if d.as_const().is_none() => self.match_size(state, d, &value),
            _ => {
                let literal: Option<Val<Operand>> = infer::literal_value(arg);
                if literal.is_some_and(|l| is_same_value(&l, &value)) {
                    return met;
                }
                self.fail(state, || {
                    format!("{} is not {}", show_value(self.graph, &value), shown_literal(arg))
                })
            }
        }
    }

    /// Matches a symbolic size of the pattern.
    fn match_size(&mut self, state: &mut SearchState<'a>, d: &Dim, value: &Val<Operand>) -> Option<Vec<Vec<Goal<'a>>>> {
        let Val::Int(size) = value else { return None };
        if self.match_dim(state, d, size) {
            return Some(vec![]);
        }
        self.fail(state, || format!("the size {size} is not {d}"))
    }

    fn match_items(
        &mut self,
        state: &mut SearchState<'a>,
        expected: &'a [Val<NodeId>],
        actual: &[Val<Operand>],
    ) -> Option<Vec<Vec<Goal<'a>>>> {
        let pattern = self.pattern;
        let rest = |a: &Val<NodeId>| matches!(a, Val::Leaf(p) if matches!(pattern.hole(*p), Some(Hole::Rest)));
        let rest_position = expected.iter().position(rest);
        let least = expected.len() - rest_position.is_some() as usize;
        if actual.len() < least || (rest_position.is_none() && actual.len() > least) {
            return self.fail(state, || {
                format!(
                    "a list has {}, not {least}",
                    crate::diag::words::count(actual.len(), "item")
                )
            });
        }
        let pair = |a: &'a Val<NodeId>, v: &Val<Operand>| (GoalPart::Arg(a), v.clone());
        let Some(rest_position) = rest_position else {
            return Some(vec![
                expected.iter().zip(actual).rev().map(|(a, v)| pair(a, v)).collect(),
            ]);
        };
        let tail = expected.len() - rest_position - 1;
        let (middle, end) = (
            &actual[rest_position..actual.len() - tail],
            &actual[actual.len() - tail..],
        );
        let mut goals: Vec<Goal<'a>> = expected[..rest_position]
            .iter()
            .zip(actual)
            .map(|(a, v)| pair(a, v))
            .collect();
        goals.extend(expected[rest_position + 1..].iter().zip(end).map(|(a, v)| pair(a, v)));
        goals.push((GoalPart::Arg(&expected[rest_position]), Val::List(middle.to_vec())));
        Some(vec![goals])
    }

    fn match_leaf(
        &mut self,
        state: &mut SearchState<'a>,
        p: NodeId,
        value: Val<Operand>,
    ) -> Option<Vec<Vec<Goal<'a>>>> {
        let pattern = self.pattern;
        let Some(hole) = pattern.hole(p) else {
            return Some(vec![vec![(GoalPart::Node(p), value)]]);
        };
        if let Hole::Computed(e) = hole {
            state.later.push((e, value));
            return Some(vec![]);
        }
        let name = pattern.name(p);
        if let Some(bound) = state.found.values.get(&p) {
            if is_same_value(bound, &value) {
                return Some(vec![]);
            }
            let (a, b) = (show_value(self.graph, bound), show_value(self.graph, &value));
            return self.fail(state, || format!("`{}` would be both {a} and {b}", signed_name(name)));
        }
        match hole {
            Hole::Either(list) => {
                state.found.values.insert(p, value.clone());
                let goals = |a: &'a Val<NodeId>| vec![(GoalPart::Arg(a), value.clone())];
                return Some(list.iter().map(goals).collect());
            }
            Hole::Literal if !infer::is_value(&value) => {
                let text = show_value(self.graph, &value);
                return self.fail(state, || format!("`{name}` must be a literal, but {text} is not"));
            }
            Hole::Value(ty) if *ty != Val::Unknown => self.match_type(state, ty, self.type_of_value(&value), p)?,
            _ => {}
        }
        state.found.values.insert(p, value);
        Some(vec![])
    }

    fn type_of_value(&self, value: &Val<Operand>) -> Type {
        match value {
            Val::Leaf(o) => infer::operand_type(self.module, self.graph, o),
            v => infer::map_leaves(v, &mut |_| Val::Unknown),
        }
    }

    /// Whether a value of type `actual` matches the type `expected` that the pattern declares.
    pub(super) fn match_type(
        &mut self,
        state: &mut SearchState<'a>,
        expected: &Type,
        actual: Type,
        p: NodeId,
    ) -> Option<()> {
        let fits = match (expected, &actual) {
            (Val::Leaf(w), Val::Leaf(a)) => self.tensor_fits(state, w, a),
            (Val::Unknown, _) => true,
            (Val::Any(crate::types::ScalarKind::Int), Val::Int(_)) => true,
            (Val::Any(crate::types::ScalarKind::Float), Val::Float(_)) => true,
            (Val::Any(crate::types::ScalarKind::Bool), Val::Bool(_)) => true,
            (Val::Any(crate::types::ScalarKind::Str), Val::Str(_)) => true,
            (w, a) => w == a,
        };
        if fits {
            return Some(());
        }
        let name = signed_name(self.pattern.name(p));
        self.fail(state, || format!("`{name}` is {actual}, not {expected}"))
    }

    fn tensor_fits(&self, state: &mut SearchState<'a>, expected: &TensorType, actual: &TensorType) -> bool {
        if expected.dtype != actual.dtype {
            return false;
        }
        match (&expected.shape, &actual.shape) {
            (None, _) => true,
            (Some(w), Some(a)) => w.len() == a.len() && w.iter().zip(a).all(|(w, a)| self.match_dim(state, w, a)),
            _ => false,
        }
    }

    fn match_dim(&self, state: &mut SearchState<'a>, expected: &Dim, actual: &Dim) -> bool {
        if *expected == Dim::Unknown {
            return true;
        }
        if *actual == Dim::Unknown {
            return false;
        }
        if let Some(name) = expected.as_var()
            && !state.found.dims.contains_key(name)
        {
            state.found.dims.insert(name.into(), actual.clone());
            return true;
        }
        let dims = &state.found.dims;
        expected.substitute(&|v| dims.get(v).cloned()) == *actual
    }
}
