//! Elements that are read and written at indices, compared with single elements.

use super::*;
use crate::tensor::SplitMix;

/// A matrix of indices for each dim of a matrix, large enough for several threads.
#[test]
fn threads_scatter_as_one_does() {
    let mut random = SplitMix::new(3);
    let (rows, columns, along, first) = (300, 131, 140, 90);
    let src: Vec<i64> = (0..rows * columns).map(|_| random.next_below(100) as i64).collect();
    for (dim, other) in [(0, [first, along]), (1, [rows, along])] {
        let index: Vec<i64> = src.iter().map(|_| random.next_below(other[dim]) as i64).collect();
        let index = Tensor::from_slice(&[rows, columns], &index);
        let by = |threads: usize| {
            let indexed = IndexedRows::new(&index, &other, dim);
            let mut dst = vec![1i64; other[0] * other[1]];
            let strides = indexed.strides_of(&[rows, columns]);
            let combine = |a: i64, b: i64| a.wrapping_mul(3).wrapping_add(b);
            let r = indexed.scatter(&src, Some(&strides), &mut dst, combine, &Pool::new(threads));
            r.map(|()| dst).map_err(|e| e.title)
        };
        assert_eq!(by(3), by(1), "dim {dim}");
    }
    let mut bad = vec![0i64; rows * columns];
    bad[rows * columns - 1] = 5;
    let index = Tensor::from_slice(&[rows, columns], &bad);
    let indexed = IndexedRows::new(&index, &[5, columns], 0);
    let mut dst = vec![0; 5 * columns];
    assert!(indexed.scatter(&[1], None, &mut dst, |_, b| b, &Pool::new(2)).is_err());
}

/// Compares with single elements for indices along `dim` of a tensor of shape `other`.
fn check_blocks(of_index: &[usize], other: &[usize], dim: usize, random: &mut SplitMix) {
    let count: usize = of_index.iter().product();
    let index: Vec<i64> = (0..count).map(|_| random.next_below(other[dim]) as i64).collect();
    let index = Tensor::from_slice(of_index, &index);
    let (strides, own) = (contiguous_strides(other), contiguous_strides(of_index));
    let place = |e: usize| -> usize {
        let at = |d: usize| match d == dim {
            true => index.as_slice::<i64>()[e] as usize,
            false => e / own[d] % of_index[d],
        };
        (0..of_index.len()).map(|d| at(d) * strides[d]).sum()
    };
    let numbers = |n: usize| (0..n as i64).collect::<Vec<_>>();
    let (src, source) = (numbers(other.iter().product()), numbers(count));
    let (rows, pool) = (IndexedRows::new(&index, other, dim), Pool::new(2));
    let mut got = vec![0i64; count];
    assert!(rows.gather(&src, &mut got, &pool).is_ok());
    assert_eq!(got, (0..count).map(|e| src[place(e)]).collect::<Vec<_>>());
    let combine = |a: i64, b: i64| a.wrapping_mul(3).wrapping_add(b);
    let (mut got, mut want) = (vec![1i64; src.len()], vec![1i64; src.len()]);
    let strides = rows.strides_of(of_index);
    assert!(rows.scatter(&source, Some(&strides), &mut got, combine, &pool).is_ok());
    (0..count).for_each(|e| want[place(e)] = combine(want[place(e)], source[e]));
    assert_eq!(got, want, "{of_index:?} in {other:?} along {dim}");
}

/// Short and long rows, tensors that are larger than the index tensor, and a last block that ends at the tensor's end.
#[test]
fn blocks_gather_and_scatter_as_single_elements_do() {
    let mut random = SplitMix::new(5);
    let cases: [(&[usize], &[usize]); 10] = [
        (&[7000, 7], &[7000, 7]),
        (&[3, 70, 5, 41], &[4, 70, 5, 41]),
        (&[20, 70, 41], &[25, 70, 50]),
        (&[700, 7], &[700, 7]),
        (&[3, 40, 5, 9], &[4, 50, 6, 11]),
        (&[5, 1, 700], &[6, 3, 701]),
        (&[2100], &[13]),
        (&[1, 1], &[3, 2]),
        (&[9, 300, 2], &[9, 300, 2]),
        (&[31, 341], &[31, 400]),
    ];
    for (of_index, other) in cases {
        (0..other.len()).for_each(|dim| check_blocks(of_index, other, dim, &mut random));
    }
}
