//! iWARP without I/O: MPA framing, DDP placement and RDMAP operations over any octet stream.
//!
//! Three protocols stand on TCP: MPA (RFC 5044, its connection setup as extended by RFC 6581) cuts
//! the stream into FPDUs, DDP (RFC 5041) says where the payload of each belongs, and RDMAP (RFC 5040)
//! says what it is for. Markers are never used: we refuse a peer that asks for them.
//!
//! - [`mpa::handshake`]: the Request and Reply frames and what the two ends agree on.
//! - [`ddp`], [`rdmap`]: the headers, one `decode` and one `encode` each.
//! - [`receive`]: the stream in, fed in pieces of any size; it says what to place where.
//! - [`transmit`]: messages out, as FPDUs whose payload is never copied.
//! - [`terminate`]: every way a peer can break the rules, and how we tell it.
//!
//! # Placement and delivery
//!
//! Payload may be placed before the CRC of its FPDU has been checked; nothing is *delivered* (no
//! message completed, no Read answered, no handle invalidated) before it has. DDP allows exactly this
//! (RFC 5041 section 5.1): memory a peer may write is undefined until a message behind it is delivered.

pub mod ddp;
mod fault;
pub mod mpa;
pub mod rdmap;
pub mod receive;
pub mod terminate;
pub mod transmit;

#[cfg(test)]
mod testing;

/// Adds octets to a raw CRC32C register (the polynomial of iSCSI, reflected).
///
/// The register starts at [`CRC_INIT`]; the check value is its complement. A function keeps this
/// crate free of dependencies and lets the caller pick the instructions its machine has.
pub type Crc32c = fn(state: u32, bytes: &[u8]) -> u32;

/// The CRC register before the first octet.
pub const CRC_INIT: u32 = !0;

/// Returns the check value of a finished register, in the octet order of RFC 5044 section 4.4:
/// that of iSCSI, least significant octet first.
pub const fn crc_octets(state: u32) -> [u8; 4] {
    (!state).to_le_bytes()
}
