//! Kernels that the verifier must reject, and similar ones that it must accept.

use super::*;
use DType::*;

/// The message of the verifier's error.
fn rejected(build: impl FnOnce(&mut KernelBuilder)) -> String {
    let mut k = KernelBuilder::new("k");
    build(&mut k);
    k.finish().expect_err("a kernel that is rejected").message
}

fn accepted(build: impl FnOnce(&mut KernelBuilder)) {
    let mut k = KernelBuilder::new("k");
    build(&mut k);
    k.finish().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn accesses_stay_in_their_buffers() {
    let copy = |n: usize, from: i64, stride: i64| {
        move |k: &mut KernelBuilder| {
            let (x, out) = (k.input("x", F32, &[20]), k.output("out", F32, &[n]));
            k.parallel_vector(n, |k, i| {
                let v = k.load(x, i * stride + from);
                k.store(out, i, v);
            });
        }
    };
    accepted(copy(20, 0, 1));
    accepted(copy(20, 19, -1));
    accepted(copy(7, 1, 3));
    assert!(rejected(copy(20, 1, 1)).contains("reaches 1..=20 of 20"));
    assert!(rejected(copy(20, -1, 1)).contains("reaches -1..=18"));
    assert!(rejected(copy(8, 0, 3)).contains("reaches 0..=21"));
    assert!(rejected(copy(2, i64::MAX, i64::MAX)).contains("reaches"));
    // A loop that never runs accesses nothing.
    accepted(copy(0, 99, 1));
}

#[test]
fn guards_prove_padded_accesses() {
    // A 3x3 window with padding 1 over 5x6. The guards bound rows and columns separately.
    let window = |rows: usize, cols: usize| {
        move |k: &mut KernelBuilder| {
            let (x, out) = (k.input("x", F32, &[2, 5, 6]), k.output("out", F32, &[2, 5, 6]));
            k.parallel(&[2, 5], |k, v| {
                k.vector(6, |k, j| {
                    let s = k.serial_reduce(ReduceOp::Add, F32, 9, |k, w| {
                        let (r, c) = (v[1] + w - 1, j - 1 + w);
                        let at = v[0] * 30 + r.clone() * 6 + c.clone();
                        let conds = vec![Cond::within(r, rows), Cond::within(c, cols)];
                        k.load_or(x, at, conds, Scalar::F32(0.0))
                    });
                    k.store(out, v[0] * 30 + v[1] * 6 + j, s);
                });
            });
        }
    };
    accepted(window(5, 6));
    assert!(rejected(window(6, 6)).contains("of 60 elements"));
    assert!(rejected(window(5, 7)).contains("of 60 elements"));
}

#[test]
fn dynamic_indices_are_bounded() {
    let gather = |size: Option<usize>| {
        move |k: &mut KernelBuilder| {
            let (ids, x, out) = (
                k.input("ids", I64, &[4]),
                k.input("x", F32, &[30]),
                k.output("out", F32, &[4]),
            );
            k.parallel_vector(4, |k, i| {
                let mut id = k.load(ids, i);
                if let Some(n) = size {
                    id = k.bounded(id, n, IndexBound::Check);
                }
                let v = k.load(x, Index::from(2).plus_dynamic(id, 3));
                k.store(out, i, v);
            });
        }
    };
    accepted(gather(Some(10)));
    assert!(rejected(gather(Some(11))).contains("reaches 2..=32 of 30"));
    assert!(rejected(gather(None)).contains("is not bounded"));
    assert!(rejected(gather(Some(0))).contains("empty dimension"));
}

#[test]
fn iterations_do_not_write_to_each_other() {
    let store = |stride: i64, inner: usize| {
        move |k: &mut KernelBuilder| {
            let out = k.output("out", I64, &[100]);
            k.parallel(&[4], |k, i| {
                k.serial(inner, |k, j| {
                    let v = k.index(j);
                    k.store(out, i[0] * stride + j, v);
                });
            });
        }
    };
    accepted(store(10, 10));
    assert!(rejected(store(10, 11)).contains("may write to the same element"));
    assert!(rejected(store(0, 10)).contains("may write to the same element"));
    // Every iteration may write to a local row.
    accepted(|k| {
        let row = k.local("row", I64, &[10]);
        k.parallel(&[4], |k, _| {
            k.vector(10, |k, j| {
                let v = k.index(j);
                k.store(row, j, v);
            });
        });
    });
    assert!(
        rejected(|k| {
            let row = k.local("row", I64, &[10]);
            k.vector(10, |k, j| {
                let v = k.index(j);
                k.store(row, 3, v);
            });
        })
        .contains("may write to the same element")
    );
}

#[test]
fn dtypes_scopes_and_nesting() {
    let zero = |k: &mut KernelBuilder, d| k.constant(Scalar::from_i64(d, 0));
    assert!(
        rejected(|k| {
            let x = zero(k, I32);
            k.unary(Unary::Exp, x);
        })
        .contains("Exp does not support i32")
    );
    assert!(
        rejected(|k| {
            let (x, y) = (zero(k, I32), zero(k, I64));
            k.binary(Binary::Add, x, y);
        })
        .contains("is i32 but")
    );
    assert!(
        rejected(|k| {
            let mut inner = None;
            k.serial(2, |k, i| inner = Some(k.index(i)));
            k.unary(Unary::Neg, inner.expect("the body ran"));
        })
        .contains("is not defined here")
    );
    assert!(
        rejected(|k| {
            k.serial(2, |k, _| k.parallel(&[2], |_, _| {}));
        })
        .contains("a parallel loop cannot be nested in a loop")
    );
    assert!(
        rejected(|k| {
            k.vector(2, |k, _| k.vector(2, |_, _| {}));
        })
        .contains("vector loops cannot be nested")
    );
    assert!(
        rejected(|k| {
            k.parallel(&[2], |_, _| {});
            k.serial(2, |_, _| {});
        })
        .contains("only parallel loops may come after")
    );
    assert!(
        rejected(|k| {
            k.input("x", F32, &[usize::MAX, 2]);
        })
        .contains("too large")
    );
}

#[test]
fn parallel_loops_write_different_elements() {
    // Writes `width` columns of three rows of ten, then the columns from `first` on.
    let columns = |width: usize, first: usize| {
        move |k: &mut KernelBuilder| {
            let y = k.output("y", F32, &[3, 10]);
            let one = k.constant(Scalar::F32(1.0));
            k.parallel(&[3, width], |k, v| k.store(y, Affine::from(v[0]) * 10 + v[1], one));
            k.parallel(&[3, 10 - first], |k, v| {
                k.store(y, Affine::from(v[0]) * 10 + v[1] + first as i64, one);
            });
        }
    };
    accepted(columns(4, 4));
    accepted(columns(7, 9));
    accepted(columns(5, 10));
    assert!(rejected(columns(5, 4)).contains("two parallel loops may use the same elements of y"));
    let reads = |k: &mut KernelBuilder| {
        let y = k.output("y", F32, &[8]);
        let one = k.constant(Scalar::F32(1.0));
        k.parallel_vector(4, |k, i| k.store(y, i, one));
        k.parallel_vector(4, |k, i| {
            let x = k.load(y, i);
            k.store(y, Affine::from(i) + 4, x);
        });
    };
    assert!(rejected(reads).contains("two parallel loops may use"));
}
