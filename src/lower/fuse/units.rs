//! Bit sets of units, used for dependencies. Joining two sets takes one word operation per 64 units.

use super::UnitId;
use cranelift_entity::EntityRef;

/// A set of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Units(Vec<u64>);

impl Units {
    /// Adds a unit.
    pub(crate) fn insert(&mut self, u: UnitId) {
        let (word, bit) = (u.index() / 64, u.index() % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// Removes a unit.
    pub(crate) fn remove(&mut self, u: UnitId) {
        if let Some(w) = self.0.get_mut(u.index() / 64) {
            *w &= !(1 << (u.index() % 64));
        }
    }

    /// Whether a unit is in the set.
    pub(crate) fn contains(&self, u: UnitId) -> bool {
        self.0
            .get(u.index() / 64)
            .is_some_and(|w| w >> (u.index() % 64) & 1 != 0)
    }

    /// Adds every unit of another set.
    pub(crate) fn union_with(&mut self, other: &Units) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    /// The number of units in the set.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_join() {
        let set = |of: &[usize]| {
            let mut s = Units::default();
            of.iter().for_each(|&i| s.insert(UnitId::new(i)));
            s
        };
        let mut a = set(&[0, 63, 64]);
        a.union_with(&set(&[1, 200]));
        assert_eq!(a.count(), 5);
        assert!([0, 1, 63, 64, 200].iter().all(|&i| a.contains(UnitId::new(i))));
        a.remove(UnitId::new(64));
        a.remove(UnitId::new(1000));
        assert!(!a.contains(UnitId::new(64)) && !a.contains(UnitId::new(1000)));
        assert_eq!(a.count(), 4);
    }
}
