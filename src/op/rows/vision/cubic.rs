//! The weights of cubic interpolation.

use super::grid_axis::GridReal;

/// The parameter of torch's cubic weights.
pub(super) const SLOPE: f64 = -0.75;

/// The weights of four neighbours at the distance `t` from the second. `slope` is the parameter of the cubic: its derivative at 1.
#[inline(always)]
pub(super) fn cubic_weights<T: GridReal>(t: T, slope: f64) -> [T; 4] {
    let (one, two, a) = (T::from_f64(1.0), T::from_f64(2.0), T::from_f64(slope));
    [
        far_weight(t + one, a),
        near_weight(t, a),
        near_weight(one - t, a),
        far_weight(two - t, a),
    ]
}

/// The weight of a neighbour at a distance of at most 1.
#[inline(always)]
fn near_weight<T: GridReal>(x: T, a: T) -> T {
    ((a + T::from_f64(2.0)) * x - (a + T::from_f64(3.0))) * x * x + T::from_f64(1.0)
}

/// The weight of a neighbour at a distance from 1 to 2.
#[inline(always)]
fn far_weight<T: GridReal>(x: T, a: T) -> T {
    ((a * x - T::from_f64(5.0) * a) * x + T::from_f64(8.0) * a) * x - T::from_f64(4.0) * a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_interpolate() {
        for slope in [-0.75, -0.5] {
            assert_eq!(cubic_weights(0.0f64, slope), [0.0, 1.0, 0.0, 0.0]);
            let sum: f64 = cubic_weights(0.3f64, slope).iter().sum();
            assert!((sum - 1.0).abs() < 1e-12);
        }
    }
}
