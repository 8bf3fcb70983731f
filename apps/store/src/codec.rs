//! XDR encoding of a program's types: one declaration gives the order of fields for decoding and encoding.
//!
//! Decoding borrows from the Payload stream and allocates nothing. Every length is checked against its bound before it
//! is used.

use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::xdr::{Truncated, Writer};
use thiserror::Error;

mod list;
pub use list::{List, ListWriter};

/// A value that can be decoded from, and encoded into, arguments or results.
pub trait Wire<'a>: Sized {
    /// Decodes the value from `r`.
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed>;

    /// Appends the value to `w`.
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated>;
}

/// The reason that arguments or results are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The bytes end early, or an item is longer than its bound.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A discriminator or an enum has a value that the protocol does not know.
    #[error("unknown value {value} before byte {at}")]
    Unknown {
        /// The offset after the value.
        at: usize,
        /// The value.
        value: u32,
    },
    /// Bytes are left over after the value.
    #[error("more than there should be at byte {at}")]
    Excess {
        /// The offset of the first extra byte.
        at: usize,
    },
}

/// Decodes a value that must take all bytes that are left.
pub(crate) fn whole<'a, T>(
    r: &mut PayloadReader<'a>,
    decode: impl FnOnce(&mut PayloadReader<'a>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let value = decode(r)?;
    if r.is_empty() { Ok(value) } else { Err(Malformed::Excess { at: r.position() }) }
}

/// Returns the error for an unknown value that was just read from `r`.
pub(crate) const fn unknown(r: &PayloadReader<'_>, value: u32) -> Malformed {
    Malformed::Unknown { at: r.position(), value }
}

/// Appends a data item. An unreduced item is appended whole; of a reduced one only the length, as its octets are in a
/// chunk.
pub(crate) fn encode_item(item: &Item<'_>, w: &mut Writer<'_>) -> Result<(), Truncated> {
    match item {
        Item::Unreduced(bytes) => w.opaque(bytes),
        Item::Reduced { length } => {
            let length = u32::try_from(*length).map_err(|_| Truncated { at: w.position() })?;
            w.u32(length)
        }
    }
}

impl<'a> Wire<'a> for () {
    fn decode(_: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(())
    }

    fn encode(&self, _: &mut Writer<'_>) -> Result<(), Truncated> {
        Ok(())
    }
}

impl<'a> Wire<'a> for u32 {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(r.u32()?)
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(*self)
    }
}

impl<'a> Wire<'a> for u64 {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(r.u64()?)
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u64(*self)
    }
}

impl<'a> Wire<'a> for bool {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        match r.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(unknown(r, value)),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(u32::from(*self))
    }
}

/// An optional value: a boolean, then the value if the boolean is true.
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        if bool::decode(r)? { T::decode(r).map(Some) } else { Ok(None) }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.is_some().encode(w)?;
        match self {
            Some(value) => value.encode(w),
            None => Ok(()),
        }
    }
}

/// Declares a struct whose fields are encoded in the order of their declaration.
macro_rules! record {
    (@wire [$($life:lifetime)?] [$trait_life:lifetime] $name:ident { $($field:ident),+ }) => {
        impl<$trait_life> $crate::codec::Wire<$trait_life> for $name $(<$life>)? {
            fn decode(
                r: &mut ::haulage_proto::chunk::PayloadReader<$trait_life>,
            ) -> Result<Self, $crate::codec::Malformed> {
                Ok(Self { $($field: $crate::codec::Wire::decode(r)?),+ })
            }

            fn encode(
                &self,
                w: &mut ::haulage_proto::xdr::Writer<'_>,
            ) -> Result<(), ::haulage_proto::xdr::Truncated> {
                $($crate::codec::Wire::encode(&self.$field, w)?;)+
                Ok(())
            }
        }
    };
    ($(#[$doc:meta])* $name:ident<$life:lifetime> {
        $($(#[$field_doc:meta])* $field:ident: $kind:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<$life> {
            $($(#[$field_doc])* pub $field: $kind,)+
        }
        $crate::codec::record!(@wire [$life] [$life] $name { $($field),+ });
    };
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)+
        }
        $crate::codec::record!(@wire [] ['wire] $name { $($field),+ });
    };
}

/// Declares an enum that is encoded as its number. Decoding rejects other numbers.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $value,)+
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the variant with this number, if there is one.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Returns the number of the variant.
            pub const fn number(self) -> u32 {
                self as u32
            }
        }

        impl<'wire> $crate::codec::Wire<'wire> for $name {
            fn decode(
                r: &mut ::haulage_proto::chunk::PayloadReader<'wire>,
            ) -> Result<Self, $crate::codec::Malformed> {
                let number = r.u32()?;
                Self::from_number(number).ok_or_else(|| $crate::codec::unknown(r, number))
            }

            fn encode(
                &self,
                w: &mut ::haulage_proto::xdr::Writer<'_>,
            ) -> Result<(), ::haulage_proto::xdr::Truncated> {
                w.u32(self.number())
            }
        }
    };
}

pub(crate) use {numbers, record};
