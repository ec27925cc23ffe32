//! Bit sets of units, used for dependencies. Joining two sets takes one word operation per 64 units.

use super::UnitId;
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;

/// A set of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Units(FixedBitSet);

impl Units {
    /// Adds a unit.
    pub(crate) fn insert(&mut self, u: UnitId) {
        self.0.grow_and_insert(u.index());
    }

    /// Removes a unit.
    pub(crate) fn remove(&mut self, u: UnitId) {
        // `FixedBitSet::remove` panics beyond its end.
        if self.contains(u) {
            self.0.remove(u.index());
        }
    }

    /// Whether a unit is in the set.
    pub(crate) fn contains(&self, u: UnitId) -> bool {
        self.0.contains(u.index())
    }

    /// Adds every unit of another set.
    pub(crate) fn union_with(&mut self, other: &Units) {
        self.0.union_with(&other.0);
    }

    /// The number of units in the set.
    pub(crate) fn count(&self) -> usize {
        self.0.count_ones(..)
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
