//! The function of librdmacm by which ids change their channels.

use std::ffi::c_int;
use std::sync::OnceLock;

use rdma_sys::{rdma_cm_id, rdma_event_channel};

/// `rdma_migrate_id`.
pub(super) type Migrate = unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;

/// Returns the function by which ids change their channels, if librdmacm is installed. The crate that binds the library
/// declares the function and does not load it.
pub(super) fn migrate() -> Option<Migrate> {
    static MIGRATE: OnceLock<Option<Migrate>> = OnceLock::new();
    *MIGRATE.get_or_init(|| {
        // SAFETY: the name ends in a zero; the library is loaded already, or its constructors may run on any thread. It
        // is never unloaded.
        let library = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is loaded, and the name ends in a zero.
        let symbol = unsafe { libc::dlsym(library, c"rdma_migrate_id".as_ptr()) };
        // SAFETY: a symbol is null or, under this name, a function of this type (rdma_cma.h); `None` is null.
        unsafe { std::mem::transmute::<*mut libc::c_void, Option<Migrate>>(symbol) }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_library_can_move_ids() {
        let homes = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
        let is_installed = homes.iter().any(|at| Path::new(at).join("librdmacm.so.1").exists());
        assert!(migrate().is_some() || !is_installed);
    }
}
