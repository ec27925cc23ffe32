//! Random values, types and conditions.

use super::{make_name, make_value, positional_args, size_name};
use crate::source::Span;
use crate::syntax::ast::*;
use crate::syntax::*;
use proptest::prelude::*;

fn arb_literal() -> impl Strategy<Value = ValueKind> {
    use ValueKind as V;
    prop_oneof![
        "[a-z_][a-z0-9_]{0,5}".prop_map(|s| V::Node(s.into())),
        "[a-z]{1,5}".prop_map(|s| V::Graph(s.into())),
        Just(V::None),
        any::<bool>().prop_map(V::Bool),
        Just(V::Ellipsis),
        any::<i64>().prop_map(V::Int),
        (-9i64..9).prop_map(V::Int),
        prop::num::f64::ANY.prop_map(V::Float),
        prop::sample::select(vec![0.0, -0.0, 1e-5, 1e16, f64::INFINITY, f64::NEG_INFINITY, 0.1]).prop_map(V::Float),
        (arb_complex_part(), arb_complex_part()).prop_map(|(a, b)| V::Complex(a, b)),
        any::<String>().prop_map(|s| V::Str(s.into())),
        prop::sample::select(vec![
            "f32",
            "torch.float32",
            "torch.contiguous_format",
            "b8",
            "N",
            "s77"
        ])
        .prop_map(|s| V::Name(s.into())),
        any::<String>().prop_map(|s| V::Device(s.into())),
        any::<String>().prop_map(|s| V::Opaque(s.into())),
    ]
}

fn arb_complex_part() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![
        0.0,
        -0.0,
        1.0,
        -2.5,
        1e-5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e20,
    ])
}

/// Arithmetic on sizes, as the parser would build it: a negated number is a negative number.
pub(super) fn arb_comparison() -> impl Strategy<Value = BinaryOp> {
    use BinaryOp::*;
    prop::sample::select(vec![Eq, Ne, Lt, Le, Gt, Ge])
}

pub(super) fn arb_size() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (-9i64..100).prop_map(|i| make_value(ValueKind::Int(i))),
        size_name().prop_map(|n| make_value(ValueKind::Name(n.text))),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        use BinaryOp::*;
        let op = prop::sample::select(vec![Add, Sub, Mul, FloorDiv, Mod]);
        let pair = (op, inner.clone(), inner.clone());
        prop_oneof![
            4 => pair.prop_map(|(op, a, b)| make_value(ValueKind::Binary(op, Box::new(a), Box::new(b)))),
            1 => inner.clone().prop_map(|a| actions::negate(a, Span::default())),
            1 => (size_name(), inner.clone()).prop_map(|(n, b)| {
                let base = make_value(ValueKind::Name(n.text));
                make_value(ValueKind::Binary(Pow, Box::new(base), Box::new(b)))
            }),
            1 => (inner.clone(), inner).prop_map(|(a, b)| make_value(ValueKind::Call(make_name("max".into()), positional_args(vec![a, b])))),
        ]
    })
}

pub(super) fn arb_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![6 => arb_literal().prop_map(make_value), 1 => arb_size()];
    leaf.prop_recursive(4, 24, 4, |inner| {
        use ValueKind as V;
        let three = || [inner.clone(), inner.clone(), inner.clone()];
        let key = prop_oneof![
            any::<String>().prop_map(|s| make_value(V::Str(s.into()))),
            (0i64..9).prop_map(|i| make_value(V::Int(i)))
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|v| make_value(V::List(v))),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|v| make_value(V::Tuple(v))),
            prop::collection::vec((key, inner.clone()), 0..3).prop_map(|v| make_value(V::Dict(v))),
            three().prop_map(|v| make_value(V::Slice(Box::new(v)))),
            three().prop_map(|v| make_value(V::Range(Box::new(v)))),
        ]
    })
}

pub(super) fn arb_condition() -> impl Strategy<Value = Value> {
    use BinaryOp::*;
    let leaf = prop_oneof![
        arb_size(),
        "[a-z]{1,3}".prop_map(|s| make_value(ValueKind::Literal(s.into()))),
        "[a-z]{1,3}".prop_map(|s| make_value(ValueKind::Call(
            make_name("dtype".into()),
            positional_args(vec![make_value(ValueKind::Node(s.into()))])
        ))),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let op = prop::sample::select(vec![Or, And, Eq, Ne, Lt, Le, Gt, Ge, In, NotIn, Add, Sub, Mul, Div]);
        prop_oneof![
            4 => (op, inner.clone(), inner.clone()).prop_map(|(op, a, b)| make_value(ValueKind::Binary(op, Box::new(a), Box::new(b)))),
            1 => inner.prop_map(|a| make_value(ValueKind::Unary(UnaryOp::Not, Box::new(a)))),
        ]
    })
}

pub(super) fn arb_type() -> impl Strategy<Value = Type> {
    let t = |kind| Type {
        kind,
        span: Span::default(),
    };
    let dtype = || prop::sample::select(vec!["f32", "b8", "i64", "c64", "f8e5m2"]);
    let size = || prop_oneof![3 => arb_size(), 1 => Just(make_value(ValueKind::Unknown))];
    let leaf = prop_oneof![
        (dtype(), prop::option::of(prop::collection::vec(size(), 0..4))).prop_map(|(d, shape)| TypeKind::Tensor {
            dtype: make_name(d.into()),
            shape
        }),
        prop::sample::select(vec!["int", "float", "bool", "str", "None"]).prop_map(|w| TypeKind::Word(w.into())),
        any::<String>().prop_map(|s| TypeKind::python(s.into())),
        Just(TypeKind::OptionalTensor),
        Just(TypeKind::Unknown),
    ]
    .prop_map(t);
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let many = || prop::collection::vec(inner.clone(), 0..4);
        let key = any::<String>().prop_map(|s| make_value(ValueKind::Str(s.into())));
        prop_oneof![
            many().prop_map(TypeKind::Tuple),
            many().prop_map(TypeKind::List),
            prop::collection::vec((key, inner.clone()), 0..3).prop_map(TypeKind::Dict),
        ]
        .prop_map(t)
    })
}
