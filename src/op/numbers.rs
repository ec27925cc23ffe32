//! Where torch accepts a Python number for a tensor.
//!
//! Rows have one schema for overloads that torch distinguishes (`eq.Tensor`, `eq.Scalar`). This table holds what the row's `Tensor`
//! parameters alone do not say: `torch.eq(x, 2)` is valid, `torch.maximum(x, 2)` is an error.

/// Ops that accept a number for any operand (torch's `should_allow_numbers_as_tensors`).
const ANY: &str = "add div divide floor_divide mul multiply sub subtract true_divide";

/// By torch's op name, the sets of parameters that may be numbers at the same time: bit `i` is parameter `i`.
const SETS: &[(&[u32], &str)] = &[
    (&[0b100, 0b110], "_add_relu rsub"),
    (&[0b1000], "addcdiv addcmul"),
    (
        &[0b1, 0b10],
        "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor float_power pow \
         remainder special_xlog1py special_xlogy special_zeta xlogy",
    ),
    (
        &[0b10],
        "celu clamp_max clamp_min copysign eq fill fmod ge greater greater_equal gt hardshrink le \
         leaky_relu less less_equal lt ne not_equal softshrink",
    ),
    (&[0b110], "clamp clip hardtanh softplus threshold"),
    (&[0b1110], "elu"),
    (&[0b100], "lerp masked_fill"),
    (&[0b10, 0b100, 0b110], "where"),
];

/// Whether torch accepts numbers for the tensor parameters in the set `numbers` (bit `i` is parameter `i`) of the
/// spelling `path`. Python operators and ops that are not torch's accept numbers wherever the row does.
pub(super) fn allows_numbers(path: &str, numbers: u32) -> bool {
    let (family, rest) = path.split_once('.').unwrap_or(("", path));
    let name = match (family, rest.strip_prefix("special.")) {
        ("aten", _) => rest.split('.').next().unwrap_or(rest).to_string(),
        ("torch", Some(name)) => format!("special_{name}"),
        ("torch" | "Tensor", _) => rest.rsplit('.').next().unwrap_or(rest).to_string(),
        _ => return true,
    };
    if numbers == 0 || name.ends_with("__") {
        return true;
    }
    let name = name.strip_suffix('_').unwrap_or(&name);
    let listed = |names: &str| names.split_whitespace().any(|n| n == name);
    let sets = SETS
        .iter()
        .find(|(_, names)| listed(names))
        .map_or(&[][..], |(sets, _)| sets);
    listed(ANY) || sets.iter().any(|set| numbers & !set == 0)
}

#[cfg(test)]
mod tests {
    use super::allows_numbers;

    #[test]
    fn numbers_stand_where_torch_takes_them() {
        for (path, given) in [
            ("torch.add", 0b01),
            ("aten.eq.Scalar", 0b10),
            ("torch.pow", 0b01),
            ("Tensor.eq_", 0b10),
            ("torch.special.xlog1py", 0b10),
            ("torch.where", 0b110),
            ("operator.and_", 0b10),
            ("Tensor.__and__", 0b10),
        ] {
            assert!(allows_numbers(path, given), "{path} {given:b}");
        }
        for (path, given) in [
            ("torch.maximum", 0b10),
            ("torch.eq", 0b01),
            ("aten.gcd.default", 0b10),
            ("torch.bitwise_and", 0b11),
            ("torch.sin", 0b1),
        ] {
            assert!(!allows_numbers(path, given), "{path} {given:b}");
        }
    }
}
