//! Accessors for JSON documents of a known structure, which report errors with their location.

use crate::diag::Code;
use serde_json::Value;
use std::fmt;

/// The reason why a document cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bad {
    /// It does not match its schema.
    Malformed(String),
    /// It contains something that fxc does not support.
    Unsupported(String),
}

impl Bad {
    /// Something that fxc does not support.
    pub(super) fn unsupported(what: impl Into<String>) -> Bad {
        Bad::Unsupported(what.into())
    }

    /// Adds the part of the document that contains the error: `node 3: expected a list`.
    pub(super) fn within(self, part: impl fmt::Display) -> Bad {
        match self {
            Bad::Malformed(why) => Bad::Malformed(format!("{part}: {why}")),
            Bad::Unsupported(what) => Bad::Unsupported(format!("{part}: {what}")),
        }
    }

    /// The code and text for a diagnostic.
    pub(super) fn into_code_and_text(self) -> (Code, String) {
        match self {
            Bad::Malformed(why) => (Code::E0403, why),
            Bad::Unsupported(what) => (Code::E0405, what),
        }
    }
}

impl<T: Into<String>> From<T> for Bad {
    fn from(why: T) -> Bad {
        Bad::Malformed(why.into())
    }
}

/// The member `key` of an object.
pub(super) fn get_member<'a>(v: &'a Value, key: &str) -> Result<&'a Value, Bad> {
    v.get(key).ok_or_else(|| match v {
        Value::Object(_) => format!("`{key}` is missing").into(),
        _ => format!("expected an object with `{key}`, found {}", kind_name(v)).into(),
    })
}

/// The member `key`, unless it is missing or `null`.
pub(super) fn get_optional<'a>(v: &'a Value, key: &str) -> Option<&'a Value> {
    v.get(key).filter(|v| !v.is_null())
}

/// The string member `key`.
pub(super) fn get_text<'a>(v: &'a Value, key: &str) -> Result<&'a str, Bad> {
    let s = get_member(v, key)?;
    s.as_str()
        .ok_or_else(|| format!("`{key}` is {}, not a string", kind_name(s)).into())
}

/// The list member `key`.
pub(super) fn get_list<'a>(v: &'a Value, key: &str) -> Result<&'a [Value], Bad> {
    read_items(get_member(v, key)?).map_err(|e| e.within(format_args!("`{key}`")))
}

/// The items of a list.
pub(super) fn read_items(v: &Value) -> Result<&[Value], Bad> {
    v.as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| format!("expected a list, found {}", kind_name(v)).into())
}

/// A 64-bit integer.
pub(super) fn read_int(v: &Value) -> Result<i64, Bad> {
    v.as_i64().ok_or_else(|| match v {
        Value::Number(n) => format!("{n} is not a 64-bit integer").into(),
        _ => format!("expected an integer, found {}", kind_name(v)).into(),
    })
}

/// A number. torch writes those that JSON cannot represent as strings.
pub(super) fn read_float(v: &Value) -> Result<f64, Bad> {
    match v {
        Value::Number(n) => n.as_f64().ok_or_else(|| format!("{n} is not a 64-bit number").into()),
        Value::String(s) => match s.as_str() {
            "Infinity" | "inf" => Ok(f64::INFINITY),
            "-Infinity" | "-inf" => Ok(f64::NEG_INFINITY),
            "NaN" | "nan" => Ok(f64::NAN),
            _ => Err(format!("{s:?} is not a number").into()),
        },
        _ => Err(format!("expected a number, found {}", kind_name(v)).into()),
    }
}

/// A bool.
pub(super) fn read_bool(v: &Value) -> Result<bool, Bad> {
    v.as_bool()
        .ok_or_else(|| format!("expected a bool, found {}", kind_name(v)).into())
}

/// A union: an object with one member, named after its type: `{"as_int": 1}`.
pub(super) fn read_union(v: &Value) -> Result<(&str, &Value), Bad> {
    let o = v
        .as_object()
        .ok_or_else(|| format!("expected an object such as {{\"as_int\": 1}}, found {}", kind_name(v)))?;
    let mut set = o.iter().filter(|(_, v)| !v.is_null());
    match (set.next(), set.next()) {
        (Some((k, v)), None) => Ok((k, v)),
        _ => Err("expected an object with one member".into()),
    }
}

fn kind_name(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    /// `serde_json` must be built with `float_roundtrip`. Without it, it multiplies the digits by a power of ten, and
    /// the last bit of many of these numbers is wrong.
    #[test]
    fn floats_are_the_nearest() {
        let read = |text: &str| read_float(&serde_json::from_str(text).unwrap()).unwrap();
        for text in [
            "-3.4028234663852886e+38",
            "0.1",
            "1e-05",
            "4e3",
            "1.7976931348623157e308",
            "2.2250738585072014e-308",
            "5e-324",
            "9007199254740993.0",
            "0.500000000000000166533453693773481063544750213623046875",
            "8.5e22",
        ] {
            assert_eq!(read(text).to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
        }
        // Python's `repr` and Rust's `{:e}` write the shortest text that identifies the number.
        let mut random = SplitMix::new(1);
        for _ in 0..20_000 {
            let x = f64::from_bits(random.next_u64());
            if x.is_finite() {
                assert_eq!(read(&format!("{x:e}")).to_bits(), x.to_bits(), "{x:e}");
            }
            let x = (random.next_u64() >> 40) as f32 / 16_777_216.0;
            assert_eq!(read(&format!("{:?}", f64::from(x))), f64::from(x));
        }
    }

    #[test]
    fn numbers_that_json_has_not_are_strings() {
        assert_eq!(read_float(&Value::from("-inf")), Ok(f64::NEG_INFINITY));
        assert!(read_float(&Value::from("NaN")).unwrap().is_nan());
        assert!(read_float(&Value::from("1.5")).is_err());
        assert!(serde_json::from_str::<Value>("1e400").is_err());
    }
}
