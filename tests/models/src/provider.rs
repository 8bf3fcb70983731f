//! The parts of the shm provider that depend on the order of accesses, and their models.

#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "modules of another crate, not all of which is used"
)]
#[path = "../../../runtime/src/provider/shm"]
pub(crate) mod shm {
    mod ring;
    mod segment;
    mod table;

    #[path = "../../../../tests/models/src/provider/doorbell.rs"]
    pub(crate) mod doorbell;
    #[path = "../../../../tests/models/src/provider/ends.rs"]
    mod ends;
    #[path = "../../../../tests/models/src/provider/records.rs"]
    pub(crate) mod records;
    #[path = "../../../../tests/models/src/provider/registrations.rs"]
    pub(crate) mod registrations;
}
