//! Python's operators on traced values.

use super::{IntoArg, Proxy};
use crate::types::Val;
use std::ops;

macro_rules! operators {
    ($($trait:ident $method:ident $target:literal;)*) => {
        $(impl<T: IntoArg> ops::$trait<T> for &Proxy {
            type Output = Proxy;
            #[track_caller]
            fn $method(self, other: T) -> Proxy {
                self.function($target, vec![Val::Leaf(self.node), other.into_arg()])
            }
        }
        impl<T: IntoArg> ops::$trait<T> for Proxy {
            type Output = Proxy;
            #[track_caller]
            fn $method(self, other: T) -> Proxy {
                ops::$trait::$method(&self, other)
            }
        }
        // One impl for each number type, so that a literal needs no suffix.
        operators!(@left $trait $method $target i64 f64);)*
    };
    (@left $trait:ident $method:ident $target:literal $($n:ty)*) => {
        $(impl ops::$trait<&Proxy> for $n {
            type Output = Proxy;
            #[track_caller]
            fn $method(self, other: &Proxy) -> Proxy {
                other.function($target, vec![self.into_arg(), Val::Leaf(other.node)])
            }
        }
        impl ops::$trait<Proxy> for $n {
            type Output = Proxy;
            #[track_caller]
            fn $method(self, other: Proxy) -> Proxy {
                ops::$trait::$method(self, &other)
            }
        })*
    };
}
operators! {
    Add add "operator.add";
    Sub sub "operator.sub";
    Mul mul "operator.mul";
    Div div "operator.truediv";
    Rem rem "operator.mod";
    BitAnd bitand "operator.and_";
    BitOr bitor "operator.or_";
    BitXor bitxor "operator.xor";
    Shl shl "operator.lshift";
    Shr shr "operator.rshift";
}

macro_rules! unary {
    ($($trait:ident $method:ident $target:literal;)*) => {
        $(impl ops::$trait for &Proxy {
            type Output = Proxy;
            #[track_caller]
            fn $method(self) -> Proxy {
                self.function($target, vec![Val::Leaf(self.node)])
            }
        }
        impl ops::$trait for Proxy {
            type Output = Proxy;
            #[track_caller]
            fn $method(self) -> Proxy {
                ops::$trait::$method(&self)
            }
        })*
    };
}
unary! {
    Neg neg "operator.neg";
    Not not "operator.invert";
}
