//! Decodes values from the bytes that [`encode`](super::encode) writes.

use super::encode::CodecError;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Error, Visitor};

/// Decodes a value. The value must use all bytes.
pub(super) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let mut decoder = Decoder(bytes);
    let value = T::deserialize(&mut decoder)?;
    match decoder.0 {
        [] => Ok(value),
        rest => Err(CodecError::custom(format!("{} bytes are left over", rest.len()))),
    }
}

/// The bytes that are left to read.
struct Decoder<'de>(&'de [u8]);

impl<'de> Decoder<'de> {
    fn take(&mut self, len: usize) -> Result<&'de [u8], CodecError> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| CodecError::custom("the bytes end too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take_byte(&mut self) -> Result<u8, CodecError> {
        Ok(self.take_array::<1>()?[0])
    }

    fn take_varint(&mut self) -> Result<u64, CodecError> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take_byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(CodecError::custom("an integer has more than 64 bits"))
    }

    fn take_signed(&mut self) -> Result<i64, CodecError> {
        let n = self.take_varint()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn take_len(&mut self) -> Result<usize, CodecError> {
        usize::try_from(self.take_varint()?).map_err(CodecError::custom)
    }

    fn take_str(&mut self) -> Result<&'de str, CodecError> {
        let len = self.take_len()?;
        std::str::from_utf8(self.take(len)?).map_err(CodecError::custom)
    }

    fn take_flag(&mut self) -> Result<bool, CodecError> {
        match self.take_byte()? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(CodecError::custom(format!("a flag is {n}"))),
        }
    }
}

// Visitors check that a number fits its type.
macro_rules! numbers {
    ($($name:ident => $take:ident $visit:ident;)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
            visitor.$visit(self.$take()?)
        })*
    };
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'de> {
    type Error = CodecError;

    numbers! {
        deserialize_bool => take_flag visit_bool;
        deserialize_u8 => take_byte visit_u8;
        deserialize_u16 => take_varint visit_u64;
        deserialize_u32 => take_varint visit_u64;
        deserialize_u64 => take_varint visit_u64;
        deserialize_i16 => take_signed visit_i64;
        deserialize_i32 => take_signed visit_i64;
        deserialize_i64 => take_signed visit_i64;
        deserialize_str => take_str visit_borrowed_str;
        deserialize_string => take_str visit_borrowed_str;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
        Err(CodecError::custom("the format does not describe its own types"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_i8(self.take_byte()? as i8)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_f32(f32::from_le_bytes(self.take_array()?))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_f64(f64::from_le_bytes(self.take_array()?))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let mut chars = self.take_str()?.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => visitor.visit_char(c),
            _ => Err(CodecError::custom("expected a single character")),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let len = self.take_len()?;
        visitor.visit_borrowed_bytes(self.take(len)?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.take_flag()? {
            true => visitor.visit_some(self),
            false => visitor.visit_none(),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let left = self.take_len()?;
        visitor.visit_seq(ItemReader { decoder: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(ItemReader {
            decoder: self,
            left: len,
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let left = self.take_len()?;
        visitor.visit_map(ItemReader { decoder: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_enum(self)
    }
}

/// The items of a sequence, or the keys and values of a map.
struct ItemReader<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for ItemReader<'_, 'de> {
    type Error = CodecError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, CodecError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(&mut *self.decoder).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        // Do not reserve memory for a length that exceeds the remaining bytes.
        Some(self.left.min(self.decoder.0.len()))
    }
}

impl<'de> de::MapAccess<'de> for ItemReader<'_, 'de> {
    type Error = CodecError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, CodecError> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, CodecError> {
        seed.deserialize(&mut *self.decoder)
    }
}

impl<'de> de::EnumAccess<'de> for &mut Decoder<'de> {
    type Error = CodecError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), CodecError> {
        let number = u32::try_from(self.take_varint()?).map_err(CodecError::custom)?;
        let value = seed.deserialize(de::value::U32Deserializer::<CodecError>::new(number))?;
        Ok((value, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Decoder<'de> {
    type Error = CodecError;

    fn unit_variant(self) -> Result<(), CodecError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, CodecError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, CodecError> {
        de::Deserializer::deserialize_tuple(self, len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        de::Deserializer::deserialize_tuple(self, fields.len(), visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::to_bytes;
    use super::from_bytes;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Unit,
        One(Option<i64>),
        Pair(u16, f32),
        Named { text: String, c: char, bytes: [u8; 3] },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Everything {
        flags: (bool, u8, i8),
        wide: (u32, u64, usize, i16, i32, f64),
        kinds: Vec<Kind>,
        names: BTreeMap<String, Vec<i32>>,
        boxed: Option<Box<Everything>>,
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Unit),
            any::<Option<i64>>().prop_map(Kind::One),
            (any::<u16>(), -1e9f32..1e9).prop_map(|(a, b)| Kind::Pair(a, b)),
            any::<(String, char, [u8; 3])>().prop_map(|(text, c, bytes)| Kind::Named { text, c, bytes }),
        ]
    }

    fn everything() -> impl Strategy<Value = Everything> {
        let kinds = prop::collection::vec(kind(), 0..4);
        let names = prop::collection::btree_map(any::<String>(), any::<Vec<i32>>(), 0..3);
        let flags = any::<(bool, u8, i8)>();
        let wide = (any::<(u32, u64, usize, i16, i32)>(), -1e300f64..1e300);
        let wide = wide.prop_map(|((a, b, c, d, e), f)| (a, b, c, d, e, f));
        (flags, wide, kinds, names).prop_map(|(flags, wide, kinds, names)| Everything {
            flags,
            wide,
            kinds,
            names,
            boxed: None,
        })
    }

    fn nested() -> impl Strategy<Value = Everything> {
        (everything(), prop::option::of(everything())).prop_map(|(outer, inner)| Everything {
            boxed: inner.map(Box::new),
            ..outer
        })
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_postcard(v in nested()) {
            let bytes = to_bytes(&v).unwrap();
            prop_assert_eq!(&bytes, &postcard::to_allocvec(&v).unwrap());
            prop_assert_eq!(&from_bytes::<Everything>(&bytes).unwrap(), &v);
            for end in 0..bytes.len() {
                prop_assert!(from_bytes::<Everything>(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(v) = from_bytes::<Everything>(&bytes) {
                prop_assert!(to_bytes(&v).unwrap().len() <= bytes.len());
            }
        }
    }

    #[test]
    fn integers_must_fit() {
        assert_eq!(from_bytes::<u64>(&to_bytes(&u64::MAX).unwrap()).unwrap(), u64::MAX);
        assert_eq!(from_bytes::<i64>(&to_bytes(&i64::MIN).unwrap()).unwrap(), i64::MIN);
        assert!(from_bytes::<u16>(&to_bytes(&70_000u32).unwrap()).is_err());
        assert!(from_bytes::<u64>(&[0xff; 10]).is_err(), "more than 64 bits");
        assert!(from_bytes::<u8>(&[1, 2]).is_err(), "a byte is left over");
        assert!(
            from_bytes::<Vec<u64>>(&to_bytes(&usize::MAX).unwrap()).is_err(),
            "a length without items"
        );
    }
}
