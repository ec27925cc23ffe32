//! Modified Bessel functions of the first kind, of orders 0 and 1.

use super::exp::exp_of_sum;
use super::{Function, horner, pick};

/// `exp(-x) i0(x)` by `x / 4 - 1`, for x in 0..8. Relative error 7.0e-17.
const I0_NEAR: [f64; 30] = [
    -1.1662904878442954e-09,
    4.469372581856615e-09,
    -7.860369707508212e-09,
    2.6273368345256394e-08,
    -1.1339523685907105e-07,
    3.675592893288293e-07,
    -1.0891964284507317e-06,
    3.2293850630678377e-06,
    -9.25059710625537e-06,
    2.5202271984440893e-05,
    -6.550956130635514e-05,
    0.0001624054672701359,
    -0.0003829015089457559,
    0.0008563152483951447,
    -0.0018118870527295522,
    0.0036171264596770616,
    -0.006792399792271578,
    0.011960077903963348,
    -0.019682654708082413,
    0.03017791202356886,
    -0.04298594945226738,
    0.056777032019843215,
    -0.06954119561742342,
    0.07927522590716898,
    -0.08496338091615124,
    0.08734341617552291,
    -0.08904344136075991,
    0.09451562853995103,
    -0.11300432688620549,
    0.2070019212239867,
];

/// `sqrt(x) exp(-x) i0(x)` by `16 / x - 1`, for x from 8. Relative error 3.2e-16.
const I0_FAR: [f64; 21] = [
    -1.7166164938175488e-10,
    -8.853076246050108e-11,
    1.0915893161016653e-09,
    6.702584046528111e-10,
    -3.1868021662287506e-09,
    -2.5824509003351837e-09,
    5.492774410203639e-09,
    6.905503273684613e-09,
    -4.522137715543013e-09,
    -1.3113874879941897e-08,
    -7.004556901394248e-09,
    7.468652718445711e-09,
    2.1593921284189837e-08,
    3.9341151967621574e-08,
    8.871772134958215e-08,
    2.973583433473054e-07,
    1.4838477678808023e-06,
    1.1143033860495017e-05,
    0.00013621607438931758,
    0.0033605519836669103,
    0.4021765094450081,
];

/// `exp(-x) i1(x) / x` by `x / 4 - 1`, for x in 0..8. Relative error 1.9e-16.
const I1_NEAR: [f64; 30] = [
    -9.365751909742237e-11,
    3.727630409237771e-10,
    -7.379291130374042e-10,
    2.6037822441041467e-09,
    -1.1191257727176943e-08,
    3.8028049651067336e-08,
    -1.2000364861910367e-07,
    3.759400376008922e-07,
    -1.1380759138279984e-06,
    3.2938951625746042e-06,
    -9.131846315273642e-06,
    2.4233756432468166e-05,
    -6.142651349494123e-05,
    0.00014842124144631648,
    -0.0003411747437353928,
    0.000744512345281566,
    -0.0015388749636515487,
    0.003005762419557192,
    -0.005534567760544582,
    0.00958396215077406,
    -0.01557130925657511,
    0.023686016957724227,
    -0.03367135551994034,
    0.044674572621255064,
    -0.05528003922705058,
    0.0637674037134072,
    -0.0684826062058255,
    0.0680575999095116,
    -0.06112433802966629,
    0.044687709875608835,
];

/// `sqrt(x) exp(-x) i1(x)` by `16 / x - 1`, for x from 8. Relative error 2.9e-16.
const I1_FAR: [f64; 21] = [
    1.79708076202127e-10,
    8.556534373260018e-11,
    -1.1459875492084381e-09,
    -6.563550610824565e-10,
    3.364402906942886e-09,
    2.575022015245385e-09,
    -5.872315764049016e-09,
    -7.045449593614895e-09,
    5.056045544132708e-09,
    1.3761872558441389e-08,
    7.0017870784877524e-09,
    -8.34829836133379e-09,
    -2.3421321386723802e-08,
    -4.314332246730572e-08,
    -1.0000822498071297e-07,
    -3.483841753091222e-07,
    -1.8349103429663388e-06,
    -1.5038547264883471e-05,
    -0.0002192357638311702,
    -0.009749577193234856,
    0.38939845902587233,
];

/// [`I0_NEAR`] for results that are rounded to f32. Relative error 8.5e-11.
const I0_NEAR_SHORT: [f64; 21] = [
    4.9179807024730725e-05,
    -0.00013592006898095621,
    0.00010271931878805943,
    -0.00020636329707506994,
    0.0009352321298116495,
    -0.0020461388965098723,
    0.0035544414024135983,
    -0.006605936634764051,
    0.01199119818260163,
    -0.019775351506074058,
    0.030168286136064423,
    -0.04295725075501792,
    0.056778814790985566,
    -0.06954651412975588,
    0.07927504492355045,
    -0.08496284076533661,
    0.08734342458197082,
    -0.08904346645630873,
    0.09451562842516041,
    -0.11300432654348828,
    0.2070019212239867,
];

/// [`I0_FAR`] for results that are rounded to f32. Relative error 1.9e-10.
const I0_FAR_SHORT: [f64; 8] = [
    3.3635802235185296e-08,
    1.0910232941075882e-07,
    3.0383309086686276e-07,
    1.4754756356201013e-06,
    1.1141542189580863e-05,
    0.000136217407834547,
    0.0033605520313900634,
    0.4021765094053054,
];

/// [`I1_NEAR`] for results that are rounded to f32. Relative error 8.5e-11.
const I1_NEAR_SHORT: [f64; 21] = [
    5.984122024648426e-06,
    -1.745472071400764e-05,
    1.7599730578225902e-05,
    -4.077280388096948e-05,
    0.00015715397534503563,
    -0.0003684467431909782,
    0.0007375935634886747,
    -0.0015172283196528769,
    0.0030091916424835638,
    -0.00554530937067591,
    0.009582902619497388,
    -0.0155679877622009,
    0.023686213041875678,
    -0.03367197055283874,
    0.044674552725048805,
    -0.055279976798581335,
    0.06376740463728496,
    -0.0684826091053086,
    0.06805759989689755,
    -0.06112433799007499,
    0.044687709875608835,
];

/// [`I1_FAR`] for results that are rounded to f32. Relative error 2.0e-10.
const I1_FAR_SHORT: [f64; 8] = [
    -3.7856024793316294e-08,
    -1.2318419674047784e-07,
    -3.5481954165334105e-07,
    -1.8250069387125121e-06,
    -1.5037047143805947e-05,
    -0.00021923738535629923,
    -0.009749577241315432,
    0.3893984590744713,
];

/// The polynomials of an order.
struct Order {
    near: &'static [f64; 30],
    near_short: &'static [f64; 21],
    far: &'static [f64; 21],
    far_short: &'static [f64; 8],
}

const ORDER_0: Order = Order {
    near: &I0_NEAR,
    near_short: &I0_NEAR_SHORT,
    far: &I0_FAR,
    far_short: &I0_FAR_SHORT,
};

const ORDER_1: Order = Order {
    near: &I1_NEAR,
    near_short: &I1_NEAR_SHORT,
    far: &I1_FAR,
    far_short: &I1_FAR_SHORT,
};

/// The largest argument of the near polynomials.
const NEAR: f64 = 8.0;

/// `exp(-x) I(x)` for x from 0 to [`NEAR`], multiplied by `factor`.
#[inline(always)]
fn scaled_near<const WIDE: bool>(x: f64, factor: f64, o: Order) -> f64 {
    let u = 0.25 * x - 1.0;
    factor
        * if WIDE {
            horner(u, o.near)
        } else {
            horner(u, o.near_short)
        }
}

/// `exp(-x) I(x)` for `x >= 0`, with the near polynomial multiplied by `factor`.
#[inline(always)]
fn scaled<const WIDE: bool>(x: f64, factor: f64, o: Order) -> f64 {
    let u = 16.0 / x - 1.0;
    let high = if WIDE { horner(u, o.far) } else { horner(u, o.far_short) };
    pick(x <= NEAR, scaled_near::<WIDE>(x, factor, o), high / x.sqrt())
}

/// `y exp(x)`, where the exponential may overflow and the product not. NaN at infinity, as in torch.
#[inline(always)]
fn unscaled<const WIDE: bool>(y: f64, x: f64) -> f64 {
    let half = exp_of_sum::<WIDE>(0.5 * x, 0.0);
    y * half * half
}

/// The value of an odd function, from its value at the magnitude. -0.0 gives 0.0, as in torch.
#[inline(always)]
fn extend_odd(y: f64, x: f64) -> f64 {
    pick(x < 0.0, -y, y)
}

macro_rules! bessel {
    ($name:ident, |$x:ident, $a:ident, $scaled:ident| $value:expr) => {
        pub(super) struct $name;
        impl Function for $name {
            #[inline(always)]
            fn eval<const WIDE: bool>($x: f64, _: f64) -> f64 {
                let $a = $x.abs();
                let $scaled = scaled::<WIDE>;
                $value
            }
            #[inline(always)]
            fn uncommon<const WIDE: bool>(x: f64, _: f64) -> u64 {
                // Negative beyond the near polynomial, which also serves NaN.
                (NEAR - x.abs()).to_bits()
            }
            #[inline(always)]
            fn eval_common<const WIDE: bool>($x: f64, _: f64) -> f64 {
                let $a = $x.abs();
                let $scaled = scaled_near::<WIDE>;
                $value
            }
        }
    };
}

bessel!(I0e, |x, a, scaled| scaled(a, 1.0, ORDER_0));
bessel!(I0, |x, a, scaled| unscaled::<WIDE>(scaled(a, 1.0, ORDER_0), a));
bessel!(I1e, |x, a, scaled| extend_odd(scaled(a, a, ORDER_1), x));
bessel!(I1, |x, a, scaled| extend_odd(
    unscaled::<WIDE>(scaled(a, a, ORDER_1), a),
    x
));
