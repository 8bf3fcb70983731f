//! A writer of JSON, with keys in the order in which they are added.

use std::fmt::Write;
use std::net::SocketAddr;

use super::is_order;

/// Writes one object; `fill` adds its members.
pub fn object(fill: impl FnOnce(&mut Object)) -> String {
    let mut object = Object::default();
    fill(&mut object);
    object.close()
}

/// Writes one array of values that are JSON already.
pub fn array(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<_> = values.into_iter().collect();
    format!("[{}]", values.join(","))
}

/// Writes a string, escaped as RFC 8259 asks. Other characters that end lines, or are orders to a terminal, are escaped, too.
pub fn string(text: &str) -> String {
    // Every string can be encoded.
    let mut encoded = serde_json::to_string(text).unwrap_or_default();
    if encoded.chars().any(is_order) {
        // All of them are in the basic plane: one escape each (RFC 8259 section 7).
        let escaped = encoded.chars().fold(String::new(), |mut escaped, character| {
            if is_order(character) {
                write_to(&mut escaped, format_args!("\\u{:04x}", u32::from(character)));
            } else {
                escaped.push(character);
            }
            escaped
        });
        encoded = escaped;
    }
    encoded
}

/// An object being written.
#[derive(Debug, Default)]
pub struct Object(String);

impl Object {
    /// Adds a string.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.json(key, &string(value))
    }

    /// Adds an unsigned integer.
    pub fn count(&mut self, key: &str, value: impl Into<u64>) -> &mut Self {
        self.json(key, &value.into().to_string())
    }

    /// Adds an unsigned integer that must arrive unchanged: as a string of digits above 2^53 - 1, since many programs
    /// read a number of JSON as a double (RFC 8259 section 6).
    pub fn exact(&mut self, key: &str, value: u64) -> &mut Self {
        if value <= EXACT_MAX { self.count(key, value) } else { self.text(key, &value.to_string()) }
    }

    /// Adds a measured number with at most `decimals` decimals; `null` where it is not finite.
    pub fn measure(
        &mut self,
        key: &str,
        value: impl Into<Option<f64>>,
        decimals: usize,
    ) -> &mut Self {
        match value.into().filter(|value| value.is_finite()) {
            Some(value) => self.json(key, &format!("{value:.decimals$}")),
            None => self.json(key, "null"),
        }
    }

    /// Adds a boolean.
    pub fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        self.json(key, if value { "true" } else { "false" })
    }

    /// Adds an object; `fill` adds its members.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.json(key, &object(fill))
    }

    /// Adds the address of a listener, or null.
    pub fn place(&mut self, key: &str, at: Option<SocketAddr>) -> &mut Self {
        match at {
            Some(at) => self.text(key, &at.to_string()),
            None => self.json(key, "null"),
        }
    }

    /// Adds a value that is JSON already.
    pub fn json(&mut self, key: &str, value: &str) -> &mut Self {
        let separator = if self.0.is_empty() { "" } else { "," };
        write_to(&mut self.0, format_args!("{separator}{}:{value}", string(key)));
        self
    }

    fn close(self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// The greatest integer below which a double holds every integer.
const EXACT_MAX: u64 = (1 << 53) - 1;

fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_nest() {
        let text = object(|o| {
            o.text("check", "x").count("size", 7_u32).flag("ok", true);
            o.object("limits", |o| {
                o.measure("rate", 2.5, 2).measure("none", None, 1).measure("nan", f64::NAN, 1);
            });
            o.json("rows", &array(["1".to_owned(), object(|_| ())]));
        });
        assert_eq!(
            text,
            r#"{"check":"x","size":7,"ok":true,"limits":{"rate":2.50,"none":null,"nan":null},"rows":[1,{}]}"#
        );
    }

    #[test]
    fn integers_that_a_double_would_change_are_strings() {
        let text = object(|o| _ = o.exact("a", EXACT_MAX).exact("b", EXACT_MAX + 1));
        assert_eq!(text, r#"{"a":9007199254740991,"b":"9007199254740992"}"#);
    }

    #[test]
    fn strings_are_escaped_and_the_rest_of_unicode_is_left_alone() {
        assert_eq!(
            string("a\"b\\c\n\r\t\u{1}\u{1f}é\u{1f600}"),
            "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001fé\u{1f600}\""
        );
        let orders = "\u{7f}\u{9b}2J\u{85}\u{2028}\u{202e}\u{2069}";
        let escaped = string(orders);
        assert_eq!(escaped, r#""\u007f\u009b2J\u0085\u2028\u202e\u2069""#);
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), orders);
        assert_eq!(object(|o| _ = o.flag("a\"", false)), r#"{"a\"":false}"#);
    }
}
