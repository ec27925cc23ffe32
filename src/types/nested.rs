//! Deserializes recursive values with a bound on their depth, so that the bytes of a file cannot overflow the reader's
//! stack.

use serde::de::{Deserialize, Deserializer, Error};
use std::cell::Cell;

/// The maximal nesting depth of values in a compiled model's file. The graph parsers have bounds of the same order.
const DEEPEST: usize = 200;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Counts a nesting level while it is alive.
struct NestingLevel;

impl Drop for NestingLevel {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Deserializes a part of a recursive value. Returns an error if the nesting is too deep.
pub(crate) fn nested<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    DEPTH.set(DEPTH.get() + 1);
    let _level = NestingLevel;
    match DEPTH.get() > DEEPEST {
        true => Err(D::Error::custom("values are nested too deeply")),
        false => T::deserialize(from),
    }
}

#[cfg(test)]
mod tests {
    use crate::types::Val;

    #[test]
    fn nesting_is_bounded() {
        let deep = |n: usize| (0..n).fold(Val::<u8>::None, |v, _| Val::List(vec![v]));
        let write = |v: &Val<u8>| postcard::to_allocvec(v).expect("values are written");
        for n in [0, 1, 199] {
            let v = deep(n);
            assert_eq!(postcard::from_bytes::<Val<u8>>(&write(&v)).expect("shallow enough"), v);
        }
        assert!(postcard::from_bytes::<Val<u8>>(&write(&deep(1000))).is_err());
        assert!(
            postcard::from_bytes::<Val<u8>>(&write(&deep(3))).is_ok(),
            "the count is back at zero"
        );
    }
}
