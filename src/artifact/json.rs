//! A JSON reader for the manifest of compiled models. Builds without `serde_json` need it too.

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// A number. A manifest contains only counts and sizes; other numbers are not kept exactly.
    Number(f64),
    String(String),
    List(Vec<Json>),
    /// The members in the order of the text.
    Object(Vec<(String, Json)>),
}

/// The maximum nesting depth.
const DEEPEST: usize = 32;

impl Json {
    /// Parses a text. The error describes the problem.
    pub(super) fn parse(text: &str) -> Result<Json, String> {
        let mut reader = JsonReader { text, at: 0 };
        let value = reader.read_value(0)?;
        reader.skip_space();
        match reader.at == text.len() {
            true => Ok(value),
            false => Err(reader.unexpected()),
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(items) => items.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(s) => Some(s),
            _ => None,
        }
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        match self {
            Json::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// A whole number.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Json::Number(x) if x.fract() == 0.0 && x.abs() < 9e15 => Some(*x as i64),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> Option<&[Json]> {
        match self {
            Json::List(items) => Some(items),
            _ => None,
        }
    }
}

struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl JsonReader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let space = |b: u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
        while self.peek().is_some_and(space) {
            self.at += 1;
        }
    }

    fn unexpected(&self) -> String {
        match self.rest().chars().next() {
            Some(c) => format!("unexpected {c:?} at byte {}", self.at),
            None => "the text is truncated".into(),
        }
    }

    /// Skips `word` if the text continues with it, and returns whether it does.
    fn skip(&mut self, word: &str) -> bool {
        self.skip_space();
        let is = self.rest().starts_with(word);
        self.at += if is { word.len() } else { 0 };
        is
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.skip(word) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn read_value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEEPEST {
            return Err("values are nested too deeply".into());
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.read_object(depth),
            Some(b'[') => self.read_list(depth),
            Some(b'"') => self.read_string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.read_number(),
            _ if self.skip("true") => Ok(Json::Bool(true)),
            _ if self.skip("false") => Ok(Json::Bool(false)),
            _ if self.skip("null") => Ok(Json::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn read_object(&mut self, depth: usize) -> Result<Json, String> {
        self.expect("{")?;
        let mut items = vec![];
        while !self.skip("}") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            self.skip_space();
            let key = self.read_string()?;
            self.expect(":")?;
            items.push((key, self.read_value(depth + 1)?));
        }
        Ok(Json::Object(items))
    }

    fn read_list(&mut self, depth: usize) -> Result<Json, String> {
        self.expect("[")?;
        let mut items = vec![];
        while !self.skip("]") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(self.read_value(depth + 1)?);
        }
        Ok(Json::List(items))
    }

    fn read_number(&mut self) -> Result<Json, String> {
        let part = |b: &u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let len = self.rest().bytes().take_while(|b| part(b)).count();
        let number = self.rest()[..len].parse().map_err(|_| self.unexpected())?;
        self.at += len;
        Ok(Json::Number(number))
    }

    fn read_string(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut out = String::new();
        loop {
            let plain = self.rest().find(['"', '\\']).ok_or("a string is not terminated")?;
            out.push_str(&self.rest()[..plain]);
            self.at += plain + 1;
            if self.text.as_bytes()[self.at - 1] == b'"' {
                return Ok(out);
            }
            out.push(self.read_escape()?);
        }
    }

    /// Parses the escape sequence after a backslash.
    fn read_escape(&mut self) -> Result<char, String> {
        let c = self.peek().ok_or("a string is not terminated")?;
        let c = match c {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => c.into(),
            b'u' => return self.read_code_point(),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(c)
    }

    /// The character of `uXXXX`, or of a surrogate pair `uXXXX\uXXXX`.
    fn read_code_point(&mut self) -> Result<char, String> {
        let mut units = vec![self.read_unit()?];
        if (0xd800..0xdc00).contains(&units[0]) && self.rest().starts_with("\\u") {
            self.at += 1;
            units.push(self.read_unit()?);
        }
        let c = char::decode_utf16(units).next();
        c.and_then(Result::ok)
            .ok_or_else(|| "an escape does not encode a character".into())
    }

    fn read_unit(&mut self) -> Result<u16, String> {
        let digits = self
            .rest()
            .get(1..5)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|d| u16::from_str_radix(d, 16).ok());
        let unit = unit.ok_or("an escape is malformed")?;
        self.at += 5;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::Json;
    use proptest::prelude::*;
    use serde_json::Value;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..5)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    fn same(a: &Json, b: &Value) -> bool {
        match (a, b) {
            (Json::Null, Value::Null) => true,
            (Json::Bool(a), Value::Bool(b)) => a == b,
            (Json::Number(a), Value::Number(b)) => Some(*a) == b.as_f64(),
            (Json::String(a), Value::String(b)) => a == b,
            (Json::List(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
            (Json::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn texts_are_read_as_serde_json_reads_them(v in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&v) } else { serde_json::to_string(&v) };
            let read = Json::parse(&text.unwrap());
            prop_assert!(read.is_ok_and(|r| same(&r, &v)));
        }

        #[test]
        fn every_text_is_read_or_refused(text in r#"[{}\[\],:"\\utrue0-9.e\-é ]{0,24}"#) {
            // Leading zeros and trailing commas are not checked: the manifest's writer does not produce them, and
            // everything that serde_json accepts is accepted.
            if let Ok(v) = serde_json::from_str::<Value>(&text) {
                let distinct = Json::parse(&text);
                prop_assert!(distinct.is_ok());
                drop(v);
            } else {
                let _ = Json::parse(&text);
            }
        }
    }

    #[test]
    fn escapes_and_nesting() {
        let read = Json::parse(r#""\u00e9\ud83d\ude00\n\/""#);
        assert_eq!(read.unwrap().as_str(), Some("é😀\n/"));
        assert!(Json::parse(r#""\ud83d""#).is_err());
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
        assert!(Json::parse("[1 2]").is_err() && Json::parse("{} x").is_err() && Json::parse("").is_err());
    }
}
