//! Encodes values without names and types, in postcard's format (<https://postcard.jamesmunns.com/wire-format>). The
//! postcard crate would be a fifth of the packages of a runtime build, so only what is needed is implemented here.
//!
//! Integers of more than 8 bits are varints: seven bits per byte, the lowest first, the top bit set on all but the last byte.
//! Signed ones are zigzag-encoded before. Sequences, maps and texts begin with their lengths, variants with their numbers.

use serde::ser::{self, Serialize};
use std::fmt;

/// A value that cannot be encoded, or bytes that cannot be decoded.
#[derive(Debug)]
pub(super) struct CodecError(String);

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CodecError {}

impl ser::Error for CodecError {
    fn custom<T: fmt::Display>(text: T) -> CodecError {
        CodecError(text.to_string())
    }
}

impl serde::de::Error for CodecError {
    fn custom<T: fmt::Display>(text: T) -> CodecError {
        CodecError(text.to_string())
    }
}

/// Encodes a value.
pub(super) fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut out = Encoder(vec![]);
    value.serialize(&mut out)?;
    Ok(out.0)
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn put_varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn put_signed(&mut self, n: i64) {
        self.put_varint((n << 1 ^ n >> 63) as u64);
    }

    fn put_len(&mut self, len: Option<usize>) -> Encoded {
        let len = len.ok_or_else(|| CodecError("a sequence of unknown length".into()))?;
        self.put_varint(len as u64);
        Ok(())
    }
}

type Encoded = Result<(), CodecError>;

macro_rules! numbers {
    ($($name:ident $t:ty => $put:ident as $as:ty;)*) => {
        $(fn $name(self, v: $t) -> Encoded {
            self.$put(v as $as);
            Ok(())
        })*
    };
}

impl<'a> ser::Serializer for &'a mut Encoder {
    type Ok = ();
    type Error = CodecError;
    type SerializeSeq = &'a mut Encoder;
    type SerializeTuple = &'a mut Encoder;
    type SerializeTupleStruct = &'a mut Encoder;
    type SerializeTupleVariant = &'a mut Encoder;
    type SerializeMap = &'a mut Encoder;
    type SerializeStruct = &'a mut Encoder;
    type SerializeStructVariant = &'a mut Encoder;

    numbers! {
        serialize_u16 u16 => put_varint as u64;
        serialize_u32 u32 => put_varint as u64;
        serialize_u64 u64 => put_varint as u64;
        serialize_i16 i16 => put_signed as i64;
        serialize_i32 i32 => put_signed as i64;
        serialize_i64 i64 => put_signed as i64;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, v: bool) -> Encoded {
        self.serialize_u8(v.into())
    }

    fn serialize_u8(self, v: u8) -> Encoded {
        self.0.push(v);
        Ok(())
    }

    fn serialize_i8(self, v: i8) -> Encoded {
        self.serialize_u8(v as u8)
    }

    fn serialize_f32(self, v: f32) -> Encoded {
        self.0.extend(v.to_le_bytes());
        Ok(())
    }

    fn serialize_f64(self, v: f64) -> Encoded {
        self.0.extend(v.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, v: char) -> Encoded {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, v: &str) -> Encoded {
        self.serialize_bytes(v.as_bytes())
    }

    fn serialize_bytes(self, v: &[u8]) -> Encoded {
        self.put_varint(v.len() as u64);
        self.0.extend(v);
        Ok(())
    }

    fn serialize_none(self) -> Encoded {
        self.serialize_u8(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Encoded {
        self.0.push(1);
        v.serialize(self)
    }

    fn serialize_unit(self) -> Encoded {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Encoded {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, variant: u32, _: &'static str) -> Encoded {
        self.serialize_u32(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, v: &T) -> Encoded {
        v.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        v: &T,
    ) -> Encoded {
        self.put_varint(variant.into());
        v.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, CodecError> {
        self.put_len(len)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, CodecError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, CodecError> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, CodecError> {
        self.put_varint(variant.into());
        Ok(self)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self, CodecError> {
        self.put_len(len)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, CodecError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, CodecError> {
        self.put_varint(variant.into());
        Ok(self)
    }
}

macro_rules! parts {
    ($($kind:ident $part:ident;)*) => {
        $(impl ser::$kind for &mut Encoder {
            type Ok = ();
            type Error = CodecError;

            fn $part<T: Serialize + ?Sized>(&mut self, v: &T) -> Encoded {
                v.serialize(&mut **self)
            }

            fn end(self) -> Encoded {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! fields {
    ($($kind:ident)*) => {
        $(impl ser::$kind for &mut Encoder {
            type Ok = ();
            type Error = CodecError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, v: &T) -> Encoded {
                v.serialize(&mut **self)
            }

            fn end(self) -> Encoded {
                Ok(())
            }
        })*
    };
}

fields! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for &mut Encoder {
    type Ok = ();
    type Error = CodecError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Encoded {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Encoded {
        v.serialize(&mut **self)
    }

    fn end(self) -> Encoded {
        Ok(())
    }
}
