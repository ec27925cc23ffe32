use super::*;

#[test]
fn a_target_runs_the_widest_kernels_whose_features_it_has() {
    let v3 = Target::from_level("x86-64-v3");
    let v4 = Target::from_level("x86-64-v4");
    assert_eq!((v3.isa(), v4.isa()), (Isa::Avx2, Isa::Avx512));
    assert_eq!(v4.without(Avx512Vl).isa(), Isa::Avx2);
    assert_eq!(v4.without(Avx2).isa(), Isa::Portable);
    assert_eq!(v3.with(Avx512F).isa(), Isa::Avx2);
    assert_eq!(Target::default().isa(), Isa::Portable);
}

#[test]
fn products_of_pairs_use_the_fastest_instructions_there_are() {
    let v4 = Target::from_level("x86-64-v4");
    let amx = v4.with(Avx512Bf16).with(AmxTile).with(AmxBf16);
    let units = [v4, v4.with(Avx512Bf16), amx, amx.without(AmxTile), amx.without(Avx512F)].map(Target::pair_unit);
    use PairUnit::*;
    assert_eq!(units, [Widening, Dots, Tiles, Dots, Widening]);
}

#[test]
fn products_of_bytes_use_their_own_instructions() {
    let v4 = Target::from_level("x86-64-v4");
    let amx = v4.with(Avx512Vnni).with(AmxTile).with(AmxInt8);
    let units = [v4, v4.with(Avx512Vnni), amx, amx.without(AmxInt8), v4.with(Avx512Bf16)].map(Target::byte_unit);
    use PairUnit::*;
    assert_eq!(units, [Widening, Dots, Tiles, Dots, Widening]);
}

#[test]
fn targets_are_compared_as_sets() {
    let v2 = Target::from_level("x86-64-v2");
    let (vnni, bf16) = (v2.with(Avx512Vnni), v2.with(Avx512Bf16));
    let missing = (vnni.missing_feature(bf16), bf16.missing_feature(vnni));
    assert_eq!(missing, (Some(Avx512Bf16), Some(Avx512Vnni)));
    assert_eq!(vnni.missing_feature(v2), None);
}

#[test]
fn texts_name_targets() {
    assert_eq!(Target::parse("native"), Ok(Target::native()));
    let without = Target::parse("native-avx512f-avx2").unwrap();
    assert!(!without.has(Avx512F) && without.isa() == Isa::Portable);
    let plain = Target::parse("native-amx-bf16-avx512bf16-amx-tile").unwrap();
    assert!(![AmxBf16, AmxTile, Avx512Bf16].iter().any(|&f| plain.has(f)));
    assert!(Target::parse("native-amx").is_err());
    assert!(Target::parse("x86-64-v9").unwrap_err().contains("x86-64-v3"));
    assert!(Target::parse("native+avx9").unwrap_err().contains("`avx9`"));
    assert!(Target::parse("native+").unwrap_err().contains("avx2"));
    assert!(Target::parse("native!é").is_err());
}

#[test]
fn a_thread_has_the_target_of_its_work() {
    let outside = thread_target();
    let nested = || (thread_target(), with_target(outside, thread_target));
    let inside = with_target(Target::default(), nested);
    assert_eq!(inside, (Target::default(), outside));
    assert_eq!((outside, thread_target()), (Target::native(), Target::native()));
    // The loops of a target that the machine cannot run use what it has.
    let all = Feature::ALL.iter().copied().fold(Target::default(), Target::with);
    assert_eq!(with_target(all, thread_target), Target::native());
}

#[test]
fn the_portable_kernels_are_always_there() {
    assert_eq!(Isa::available()[0], Isa::Portable);
    assert!(Isa::available().contains(&Target::native().isa()));
}
