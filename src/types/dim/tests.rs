use super::*;

#[test]
fn normal_form_makes_equal_sizes_equal() {
    let n = Dim::var("N");
    let m = Dim::var("M");
    let two_n_1 = n.mul(&Dim::Const(2)).add(&Dim::Const(1));
    assert_eq!(two_n_1.to_string(), "2*N + 1");
    assert_eq!(two_n_1.sub(&n).sub(&n), Dim::Const(1));
    assert_eq!(n.mul(&m), m.mul(&n));
    assert_eq!(n.mul(&Dim::Const(6)).floordiv(&Dim::Const(3)), n.mul(&Dim::Const(2)));
    assert_eq!(n.mul(&m).floordiv(&m), n);
    assert_eq!(n.floordiv(&Dim::Const(2)).to_string(), "(N // 2)");
    assert_eq!(n.floordiv(&Dim::Const(2)).eval(&|_| Some(7)), Some(3));
    assert_eq!(two_n_1.as_linear(), Some(("N", 2, 1)));
    assert_eq!(Dim::Const(i64::MAX).add(&Dim::Const(1)), Dim::Unknown);
}

#[test]
fn division_floors_as_python_does() {
    for (a, b, q, r) in [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1)] {
        assert_eq!(Dim::Const(a).floordiv(&Dim::Const(b)), Dim::Const(q));
        assert_eq!(Dim::Const(a).modulo(&Dim::Const(b)), Dim::Const(r));
    }
}

#[test]
fn broadcasting_aligns_right() {
    let d = |v: &[i64]| v.iter().map(|&x| Dim::Const(x)).collect::<Vec<_>>();
    assert_eq!(broadcast_dims(&d(&[3, 1]), &d(&[4])), Ok(d(&[3, 4])));
    assert_eq!(broadcast_dims(&d(&[0]), &d(&[1])), Ok(d(&[0])));
    assert_eq!(broadcast_dims(&d(&[2]), &d(&[3])), Err(0));
    let (n, first) = (Dim::var("N"), Dim::Const(1).min_of(&Dim::var("N")));
    for [a, b] in [[&n, &first], [&first, &n]] {
        let [a, b] = [a, b].map(std::slice::from_ref);
        assert_eq!(broadcast_dims(a, b), Ok(vec![n.clone()]));
    }
}
