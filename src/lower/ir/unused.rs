//! Removes values that no result depends on.

use super::{Def, Tir, ValueId};
use crate::op::OpResult;
use crate::types::Val;
use rustc_hash::FxHashMap;

impl Tir {
    /// Removes unused values and library calls without effects, and renumbers the others. Inputs stay: they are part of
    /// the interface. Earlier steps redefine values and leave their former operands behind, which fusion would treat as
    /// used and compute in every call.
    pub(in crate::lower) fn remove_unused_values(&mut self) -> OpResult<()> {
        let used = self.used_values();
        if used.iter().all(|&u| u) {
            return Ok(());
        }
        let calls = self.renumber_calls(&used);
        let mut next = 0;
        let ids: Vec<ValueId> = used
            .iter()
            .map(|&u| {
                let id = ValueId(next);
                next += u as u32;
                id
            })
            .collect();
        let mut position = 0;
        self.values.retain(|_| {
            position += 1;
            used[position - 1]
        });
        for v in &mut self.values {
            v.def.renumber(&ids, &calls);
        }
        self.renumber_references(&used, &ids);
        Ok(())
    }

    /// For each value, whether it is an input, or a result or a call with effects depends on it.
    fn used_values(&self) -> Vec<bool> {
        let mut used: Vec<bool> = self.values.iter().map(|v| matches!(v.def, Def::Input(_))).collect();
        let mut mark = |v: &ValueId| used[v.0 as usize] = true;
        self.output
            .iter()
            .for_each(|o| o.leaves().into_iter().for_each(&mut mark));
        let effects = self.calls.iter().filter(|c| c.has_side_effects());
        effects.for_each(|c| c.results.iter().for_each(&mut mark));
        for i in (0..self.values.len())
            .rev()
            .filter(|&i| !matches!(self.values[i].def, Def::Input(_)))
        {
            if !used[i] {
                continue;
            }
            for o in self.operands(ValueId(i as u32)) {
                used[o.0 as usize] = true;
            }
            // A call is executed as a whole.
            if let Def::Routine { call, .. } = self.values[i].def {
                self.calls[call].results.iter().for_each(|r| used[r.0 as usize] = true);
            }
        }
        used
    }

    /// Removes unused calls. Returns the new positions of the others.
    fn renumber_calls(&mut self, used: &[bool]) -> Vec<usize> {
        let keep: Vec<bool> = self
            .calls
            .iter()
            .map(|c| c.results.iter().any(|r| used[r.0 as usize]))
            .collect();
        let positions = keep.iter().scan(0, |next, &k| {
            let position = *next;
            *next += k as usize;
            Some(position)
        });
        let positions = positions.collect();
        let mut kept = keep.iter();
        self.calls.retain(|_| kept.next().is_some_and(|&k| k));
        positions
    }

    /// Replaces ids outside of definitions.
    pub(super) fn renumber_references(&mut self, used: &[bool], ids: &[ValueId]) {
        let new = |v: &ValueId| ids[v.0 as usize];
        let all = |v: &Val<ValueId>| v.map(new);
        for call in &mut self.calls {
            call.call.args.iter_mut().for_each(|a| *a = all(a));
            call.results.iter_mut().for_each(|r| *r = new(r));
        }
        self.inputs.iter_mut().for_each(|(_, v)| *v = all(v));
        self.output = self.output.as_ref().map(all);
        fn renumber<T>(map: &mut FxHashMap<ValueId, T>, used: &[bool], ids: &[ValueId]) {
            let old = std::mem::take(map).into_iter();
            let kept = old.filter(|(v, _)| used[v.0 as usize]);
            *map = kept.map(|(v, x)| (ids[v.0 as usize], x)).collect();
        }
        renumber(&mut self.activations, used, ids);
        renumber(&mut self.softmax, used, ids);
        renumber(&mut self.channels_last, used, ids);
    }
}

impl Def {
    pub(super) fn renumber(&mut self, ids: &[ValueId], calls: &[usize]) {
        let renumber = |v: &mut ValueId| *v = ids[v.0 as usize];
        match self {
            Def::Input(_) | Def::Constant(_) => {}
            Def::Pointwise { args, .. } | Def::Contract { args, .. } | Def::Special { args, .. } => {
                args.iter_mut().for_each(renumber)
            }
            Def::Reduce { arg, .. } | Def::View { arg, .. } => renumber(arg),
            Def::Routine { call, .. } => *call = calls[*call],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tir;

    /// The text after unused values were removed.
    fn without_unused(text: &str) -> String {
        let mut tir = Tir::parse(text).unwrap();
        tir.remove_unused_values().unwrap();
        tir.to_string()
    }

    #[test]
    fn chains_of_unused_values_are_removed() {
        let text = "\
%x: f32[4] = input 0
%a: f32[4] = map(%x) { exp(a0) }
%b: f32[1] = sum(%a) dims=[0] in=f32
%c: f32[4] = map(%x) { sub(a0, f32(1.0)) } activation=relu
%d: f32[4] = map(%c, %b) { mul(a0, a1) }
%e: f32[2, 2] = reshape(%c)
return %e
";
        let rest = "\
%x: f32[4] = input 0
%c: f32[4] = map(%x) { sub(a0, f32(1.0)) } activation=relu
%e: f32[2, 2] = reshape(%c)
return %e
";
        assert_eq!(without_unused(text), rest);
        assert_eq!(without_unused(rest), rest);
    }

    #[test]
    fn unused_inputs_stay() {
        let text = "%x: f32[4] = input 0\n%y: f32[4] = input 1\nreturn %y\n";
        assert_eq!(without_unused(text), text);
    }
}
