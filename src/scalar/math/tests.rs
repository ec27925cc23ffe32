use super::*;

fn close(got: f64, want: f64) {
    let ok = got == want || (got - want).abs() <= want.abs() * 2e-13 || (got.is_nan() && want.is_nan());
    assert!(ok, "{got:e} is not {want:e}");
}

#[test]
fn special_functions_have_scipy_s_values() {
    close(erfcx(-2.0), 108.94090438997797);
    close(erfcx(9.5), 0.0590646783525639);
    close(erfcx(1000.0), 0.0005641893014533876);
    close(erfinv(0.3), 0.272462714726754);
    close(erfinv(-0.999999), -3.458910737275499);
    close(digamma(0.7), -1.2200235536979348);
    close(digamma(-3.3), 3.620353460592126);
    close(bessel_i(0, 3.0, true), 4.880792585865024);
    close(bessel_i(0, 30.0, true), 781672297823.9775);
    close(bessel_i(1, 50.0, false), 0.055993123892895395);
    close(ndtri(1e-300), -37.0470962993612);
    close(ndtri(0.01), -2.3263478740408408);
    close(ndtri(0.9), 1.2815515655446004);
    close(zeta(2.0, 1.0), PI * PI / 6.0);
    close(zeta(3.5, 0.2), 280.1319608387334);
}

#[test]
fn maxima_follow_torch_at_nan_and_zero() {
    assert!(max64(f64::NAN, 1.0).is_nan() && max64(1.0, f64::NAN).is_nan());
    assert!(max64(0.0, -0.0).is_sign_positive() && max64(-0.0, 0.0).is_sign_negative());
    let fmax = f64_binary(Binary::Fmax).expect("a float function");
    assert_eq!(fmax(f64::NAN, 1.0), 1.0);
}

#[test]
fn division_rounds_as_torch_does() {
    let fd = f32_binary(Binary::FloorDiv).expect("a float function");
    assert_eq!(fd(1.0, 0.1), 9.0);
    assert_eq!(fd(-7.0, 2.0), -4.0);
    assert!(fd(1.0, 0.0).is_infinite());
    let m = f32_binary(Binary::Mod).expect("a float function");
    assert_eq!(m(-1e-8, 1.0), 1.0);
    assert_eq!(m(-5.0, f32::INFINITY), f32::INFINITY);
    assert_eq!(nextafter32(0.0, -1.0).to_bits(), 0x8000_0001);
    assert_eq!(nextafter64(1.0, 2.0), 1.0 + f64::EPSILON);
}
