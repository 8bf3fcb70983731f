//! The metrics of a storage server that count the Replies to its clients, a label for each status of NFS and of MNT.

use haulage_store::server::Told;
use haulage_store::{mount3, nfs3};

use crate::metrics::Metric;

/// Returns the metrics of the results of NFS and of MNT, by status.
pub(super) fn metrics(told: &Told) -> impl Iterator<Item = Metric> {
    let nfs = told.nfs().map(|(status, value)| Metric {
        name: "haulage_nfs_results_total",
        label: nfs(status),
        help: "Results of NFS procedures, by status.",
        value,
    });
    nfs.chain(told.mount().map(|(status, value)| Metric {
        name: "haulage_mount_results_total",
        label: mount(status),
        help: "Results of MNT, by status.",
        value,
    }))
}

/// Returns the label of a status of NFS: its name in RFC 1813 section 2.6.
const fn nfs(status: nfs3::Status) -> &'static str {
    use nfs3::Status;
    match status {
        Status::Ok => "status=\"NFS3_OK\"",
        Status::Perm => "status=\"NFS3ERR_PERM\"",
        Status::NoEnt => "status=\"NFS3ERR_NOENT\"",
        Status::Io => "status=\"NFS3ERR_IO\"",
        Status::NxIo => "status=\"NFS3ERR_NXIO\"",
        Status::Acces => "status=\"NFS3ERR_ACCES\"",
        Status::Exist => "status=\"NFS3ERR_EXIST\"",
        Status::XDev => "status=\"NFS3ERR_XDEV\"",
        Status::NoDev => "status=\"NFS3ERR_NODEV\"",
        Status::NotDir => "status=\"NFS3ERR_NOTDIR\"",
        Status::IsDir => "status=\"NFS3ERR_ISDIR\"",
        Status::Inval => "status=\"NFS3ERR_INVAL\"",
        Status::FBig => "status=\"NFS3ERR_FBIG\"",
        Status::NoSpc => "status=\"NFS3ERR_NOSPC\"",
        Status::RoFs => "status=\"NFS3ERR_ROFS\"",
        Status::MLink => "status=\"NFS3ERR_MLINK\"",
        Status::NameTooLong => "status=\"NFS3ERR_NAMETOOLONG\"",
        Status::NotEmpty => "status=\"NFS3ERR_NOTEMPTY\"",
        Status::DQuot => "status=\"NFS3ERR_DQUOT\"",
        Status::Stale => "status=\"NFS3ERR_STALE\"",
        Status::Remote => "status=\"NFS3ERR_REMOTE\"",
        Status::BadHandle => "status=\"NFS3ERR_BADHANDLE\"",
        Status::NotSync => "status=\"NFS3ERR_NOT_SYNC\"",
        Status::BadCookie => "status=\"NFS3ERR_BAD_COOKIE\"",
        Status::NotSupp => "status=\"NFS3ERR_NOTSUPP\"",
        Status::TooSmall => "status=\"NFS3ERR_TOOSMALL\"",
        Status::ServerFault => "status=\"NFS3ERR_SERVERFAULT\"",
        Status::BadType => "status=\"NFS3ERR_BADTYPE\"",
        Status::Jukebox => "status=\"NFS3ERR_JUKEBOX\"",
    }
}

/// Returns the label of a status of MNT: its name in RFC 1813 section 5.1.5.
const fn mount(status: mount3::Status) -> &'static str {
    use mount3::Status;
    match status {
        Status::Ok => "status=\"MNT3_OK\"",
        Status::Perm => "status=\"MNT3ERR_PERM\"",
        Status::NoEnt => "status=\"MNT3ERR_NOENT\"",
        Status::Io => "status=\"MNT3ERR_IO\"",
        Status::Acces => "status=\"MNT3ERR_ACCES\"",
        Status::NotDir => "status=\"MNT3ERR_NOTDIR\"",
        Status::Inval => "status=\"MNT3ERR_INVAL\"",
        Status::NameTooLong => "status=\"MNT3ERR_NAMETOOLONG\"",
        Status::NotSupp => "status=\"MNT3ERR_NOTSUPP\"",
        Status::ServerFault => "status=\"MNT3ERR_SERVERFAULT\"",
    }
}
