//! Header types of the round-trip extensions ([`crate::rtrext`]).

/// The private code space of reading E10, which is added to every header type and property code of
/// the draft: `RT` in the upper half.
pub const CODE_BASE: u32 = 0x5254_0000;

/// `rdma_htype` of [`Header::Request`](crate::rtrext::Header::Request).
pub const XMTREQ: u32 = CODE_BASE | 1;
/// `rdma_htype` of [`Header::Response`](crate::rtrext::Header::Response).
pub const XMTRESP: u32 = CODE_BASE | 2;
/// `rdma_htype` of [`Header::Continue`](crate::rtrext::Header::Continue).
pub const XMTCONT: u32 = CODE_BASE | 3;
/// `rdma_htype` of [`Header::Report`](crate::rtrext::Header::Report).
pub const REPTERR: u32 = CODE_BASE | 4;

/// Returns the name the draft gives a header type of the round-trip extensions; `None` for any other.
pub const fn header_name(htype: u32) -> Option<&'static str> {
    match htype {
        XMTREQ => Some("ROPT_XMTREQ"),
        XMTRESP => Some("ROPT_XMTRESP"),
        XMTCONT => Some("ROPT_XMTCONT"),
        REPTERR => Some("ROPT_REPTERR"),
        _ => None,
    }
}
