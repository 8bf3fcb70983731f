//! JSON whose objects name each member once.
//!
//! RFC 8259 section 4 leaves open what a name that comes twice means; most parsers keep the last value and say nothing.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value of JSON. Deserializing it fails if an object in it has two members of one name.
#[derive(Debug)]
pub struct Unique(pub Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Building).map(Self)
    }
}

/// The visitor that builds the value.
struct Building;

impl<'de> Visitor<'de> for Building {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = elements.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, Unique(value))) = entries.next_entry::<String, _>()? {
            // Escaped, since an error is one line.
            let twice = format!("{}: given twice", name.escape_debug());
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom(twice));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_given_twice_is_refused_however_deep_it_lies() {
        for text in [r#"{"xid":1,"xid":2}"#, r#"{"a":[{"xid":1,"b":0,"x\u0069d":1}]}"#] {
            let error = serde_json::from_str::<Unique>(text).unwrap_err();
            assert!(
                error.is_data() && error.to_string().starts_with("xid: given twice"),
                "{error}"
            );
        }
    }

    #[test]
    fn every_other_value_is_what_the_parser_says() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,1.5,"\u00e9"],"b":{"a":{}}}"#;
        let Unique(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
    }
}
