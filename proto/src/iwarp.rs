//! iWARP without I/O: MPA framing, DDP placement and RDMAP operations over any octet stream.
//!
//! Three protocols run on TCP: MPA (RFC 5044, with the connection setup of RFC 6581) divides the stream into FPDUs, DDP
//! (RFC 5041) places the payload of each, and RDMAP (RFC 5040) defines the operations. Markers are never used, and a
//! peer that requires them is refused.
//!
//! - [`mpa::handshake`]: the Request and Reply frames and the agreement of the two ends.
//! - [`ddp`], [`rdmap`]: the headers, one `decode` and one `encode` each.
//! - [`receive`]: the receiver of a stream, which takes pieces of any size and says where to place
//!   payload.
//! - [`observe`]: the observer of a stream, which reads what both ends send.
//! - [`transmit`]: the sender of a stream, which makes FPDUs without copying payload.
//! - [`terminate`]: the Terminate message, which tells a peer the rule it broke.
//!
//! # Placement and delivery
//!
//! Payload may be placed before the CRC of its FPDU has been checked; nothing is *delivered* (no
//! message completed, no Read answered, no handle invalidated) before it has. DDP allows exactly this
//! (RFC 5041 section 5.1): memory a peer may write is undefined until a message behind it is delivered.

pub mod ddp;
mod fault;
pub mod mpa;
pub mod observe;
pub mod rdmap;
pub mod receive;
pub mod terminate;
pub mod transmit;

#[cfg(test)]
mod testing;

/// Adds octets to a raw CRC32C register (the polynomial of iSCSI, reflected).
///
/// The register starts at [`CRC_INIT`]; the check value is its complement. Because the caller
/// supplies the function, this crate has no dependencies and the caller can use its machine's CRC
/// instructions.
pub type Crc32c = fn(state: u32, bytes: &[u8]) -> u32;

/// The CRC register before the first octet.
pub const CRC_INIT: u32 = !0;

/// Returns the check value of a finished register, in the octet order of RFC 5044 section 4.4:
/// that of iSCSI, least significant octet first.
pub const fn crc_octets(state: u32) -> [u8; 4] {
    (!state).to_le_bytes()
}
