//! Slices that are combined and copied by several threads.

use super::*;

#[test]
fn threads_combine_as_one_does() {
    for (n, outer, count, inner) in [
        (37, 1, 5000, 17),
        (37, 1, 5000, 1),
        (37, 9, 5000, 13),
        (37, 40, 5000, 1),
        (37, 4000, 20, 1),
        (37, 700, 50, 3),
        (37, 1, 60, 3000),
        (700, 1, 900, 120),
    ] {
        let places: Vec<i64> = (0..count).map(|i| (i * i % n) as i64).collect();
        let slices = NamedSlices {
            outer,
            n,
            inner,
            index: Tensor::from_slice(&[count], &places),
        };
        let src: Vec<i64> = (0..(outer * count * inner) as i64).collect();
        let combine = |a: i64, b: i64| a.wrapping_mul(3).wrapping_add(b);
        let mut want = vec![1i64; outer * n * inner];
        slices.for_each(|to, from| {
            let pairs = want[to].iter_mut().zip(&src[from]);
            pairs.for_each(|(d, s)| *d = combine(*d, *s));
        });
        for threads in [1, 3] {
            let mut dst = vec![1i64; outer * n * inner];
            slices.combine(&src, &mut dst, &Pool::new(threads), combine);
            assert_eq!(dst, want);
            let (mut copied, mut want) = (vec![-1; dst.len()], vec![-1; dst.len()]);
            slices.for_each(|to, from| want[to].copy_from_slice(&src[from]));
            let pool = Pool::new(threads);
            slices.write(&mut copied, Some(&pool).filter(|_| threads > 1), |to, from| {
                to.copy_from_slice(&src[from..][..to.len()])
            });
            assert_eq!(copied, want);
        }
    }
}
