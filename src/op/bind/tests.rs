use super::*;
use crate::types::{DType, TensorType};

fn tensor() -> Type {
    Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2, 3]))
}

fn bind(schema: &str, args: &[Type], kwargs: &[(&str, &Type)]) -> Result<Vec<Type>, BindError> {
    Binding::new(&Schema::parse(schema), args, kwargs, Leniency::default()).map(|b| b.apply(args, kwargs, &|_| false))
}

#[test]
fn spreads_ints_over_a_list() {
    let view = "view(Tensor self, SymInt[] size) -> Tensor";
    let want = vec![tensor(), Val::List(vec![Val::int(3), Val::int(2)])];
    assert_eq!(bind(view, &[tensor(), Val::int(3), Val::int(2)], &[]), Ok(want.clone()));
    assert_eq!(
        bind(view, &[tensor(), Val::Tuple(vec![Val::int(3), Val::int(2)])], &[]),
        Ok(want)
    );
    let pool = "max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0) -> Tensor";
    let two = |n| Val::List(vec![Val::int(n); 2]);
    assert_eq!(
        bind(pool, &[tensor(), Val::int(3), Val::int(2)], &[]),
        Ok(vec![tensor(), two(3), two(2), two(0)])
    );
}

#[test]
fn says_what_does_not_fit() {
    let s = "softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor";
    assert_eq!(bind(s, &[tensor()], &[]), Err(BindError::Missing("dim".into())));
    let one = Val::int(1);
    assert_eq!(
        bind(s, &[tensor()], &[("dmi", &one)]),
        Err(BindError::UnknownKeyword {
            name: "dmi".into(),
            nearest: Some("dim".into())
        })
    );
    assert!(matches!(
        bind(s, &[tensor(), Val::str("x")], &[]),
        Err(BindError::WrongType { found: "str", .. })
    ));
    assert_eq!(
        bind(s, &[], &[("input", &tensor()), ("axis", &one)]),
        Ok(vec![tensor(), one, Val::None])
    );
}
