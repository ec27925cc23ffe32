//! Reading a JSON document of a known shape: each accessor says what is wrong where it is.

use serde_json::Value;

/// What is wrong with a document.
pub(super) type Bad = String;

/// The member `key` of an object.
pub(super) fn get<'a>(v: &'a Value, key: &str) -> Result<&'a Value, Bad> {
    v.get(key).ok_or_else(|| match v {
        Value::Object(_) => format!("`{key}` is missing"),
        _ => format!("expected an object with `{key}`, found {}", kind(v)),
    })
}

/// The member `key`, unless it is missing or `null`.
pub(super) fn optional<'a>(v: &'a Value, key: &str) -> Option<&'a Value> {
    v.get(key).filter(|v| !v.is_null())
}

/// The string member `key`.
pub(super) fn text<'a>(v: &'a Value, key: &str) -> Result<&'a str, Bad> {
    let s = get(v, key)?;
    s.as_str()
        .ok_or_else(|| format!("`{key}` is {}, not a string", kind(s)))
}

/// The list member `key`.
pub(super) fn list<'a>(v: &'a Value, key: &str) -> Result<&'a [Value], Bad> {
    items(get(v, key)?).map_err(|e| format!("`{key}`: {e}"))
}

/// The items of a list.
pub(super) fn items(v: &Value) -> Result<&[Value], Bad> {
    v.as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| format!("expected a list, found {}", kind(v)))
}

/// An integer of 64 bits.
pub(super) fn int(v: &Value) -> Result<i64, Bad> {
    v.as_i64().ok_or_else(|| match v {
        Value::Number(n) => format!("{n} is no integer of 64 bits"),
        _ => format!("expected an integer, found {}", kind(v)),
    })
}

/// The document with every number that is no integer in quotes: `serde_json` rounds to a neighbour of the nearest float
/// (-3.4028234663852886e+38 becomes a number that f32 does not have), Rust's own parser does not.
pub(super) fn exact_floats(text: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 64);
    let mut i = 0;
    let part = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
    while i < text.len() {
        let start = i;
        match text[i] {
            b'"' => {
                i += 1;
                while i < text.len() && text[i] != b'"' {
                    i += if text[i] == b'\\' { 2 } else { 1 };
                }
                i = (i + 1).min(text.len());
                out.extend_from_slice(&text[start..i]);
            }
            b if b.is_ascii_digit() || b == b'-' => {
                while i < text.len() && part(text[i]) {
                    i += 1;
                }
                let number = &text[start..i];
                let float = number.iter().any(|b| matches!(b, b'.' | b'e' | b'E'));
                let quoted =
                    float && std::str::from_utf8(number).is_ok_and(|n| n.parse::<f64>().is_ok_and(f64::is_finite));
                out.extend(quoted.then_some(b'"'));
                out.extend_from_slice(number);
                out.extend(quoted.then_some(b'"'));
            }
            b => {
                out.push(b);
                i += 1;
            }
        }
    }
    out
}

/// A number; torch writes those that JSON has not as strings.
pub(super) fn float(v: &Value) -> Result<f64, Bad> {
    match v {
        Value::Number(n) => n.as_f64().ok_or_else(|| format!("{n} is no number of 64 bits")),
        Value::String(s) => match s.as_str() {
            "Infinity" | "inf" => Ok(f64::INFINITY),
            "-Infinity" | "-inf" => Ok(f64::NEG_INFINITY),
            "NaN" | "nan" => Ok(f64::NAN),
            // What `exact_floats` has quoted.
            _ => s.parse().map_err(|_| format!("{s:?} is no number")),
        },
        _ => Err(format!("expected a number, found {}", kind(v))),
    }
}

/// A bool.
pub(super) fn boolean(v: &Value) -> Result<bool, Bad> {
    v.as_bool().ok_or_else(|| format!("expected a bool, found {}", kind(v)))
}

/// A union: an object whose one member is named after its type, `{"as_int": 1}`.
pub(super) fn union(v: &Value) -> Result<(&str, &Value), Bad> {
    let o = v
        .as_object()
        .ok_or_else(|| format!("expected an object such as {{\"as_int\": 1}}, found {}", kind(v)))?;
    let mut set = o.iter().filter(|(_, v)| !v.is_null());
    match (set.next(), set.next()) {
        (Some((k, v)), None) => Ok((k, v)),
        _ => Err("expected an object with one member".into()),
    }
}

fn kind(v: &Value) -> &'static str {
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

    #[test]
    fn floats_are_the_nearest() {
        let text = br#"{"a": -3.4028234663852886e+38, "b": [1, 0.1, 1e-05], "c 1.5": "2.5 \\\" 3.5", "d": 12}"#;
        let v: Value = serde_json::from_slice(&exact_floats(text.to_vec())).unwrap();
        assert_eq!(float(&v["a"]), Ok(f32::MIN as f64));
        assert_eq!(float(&v["b"][1]), Ok(0.1));
        assert_eq!(int(&v["b"][0]), Ok(1));
        assert_eq!(v["c 1.5"], "2.5 \\\" 3.5");
        assert_eq!(int(&v["d"]), Ok(12));
        assert_eq!(exact_floats(b"\"open 1.5".to_vec()), b"\"open 1.5");
    }
}
