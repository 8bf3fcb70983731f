//! The storage server over TCP, called by an independent client of NFS version 3 and MOUNT version 3.
//!
//! Every procedure is called on every kind of export, by its own types and its own XDR. Attributes that a Reply
//! has beside its results are compared with those that GETATTR returns.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "nfs_over_tcp/attributes.rs"]
mod attributes;
#[path = "nfs_over_tcp/bed.rs"]
mod bed;
#[path = "nfs_over_tcp/client.rs"]
mod client;
#[path = "nfs_over_tcp/data.rs"]
mod data;
#[path = "nfs_over_tcp/every.rs"]
mod every;
#[path = "nfs_over_tcp/limits.rs"]
mod limits;
#[path = "nfs_over_tcp/listing.rs"]
mod listing;
#[path = "nfs_over_tcp/mount.rs"]
mod mount;
#[path = "nfs_over_tcp/mounted.rs"]
mod mounted;
#[path = "nfs_over_tcp/names.rs"]
mod names;
#[path = "nfs_over_tcp/rpc.rs"]
mod rpc;
#[path = "nfs_over_tcp/shut.rs"]
mod shut;
