//! MOUNT: where clients find the directory at the top.

use haulage_proto::xdr::{Truncated, Writer};

use crate::codec::{List, ListWriter};
use crate::handle::SealedHandle;
use crate::mount3::{Arguments, Export, Flavors, Mounted, Path, Results, Status};

/// The only path that can be mounted: all there is.
const TOP: &[u8] = b"/";

/// Appends the results of a Call.
pub(super) fn answer(
    arguments: &Arguments<'_>,
    root: &SealedHandle,
    w: &mut Writer<'_>,
) -> Result<(), Truncated> {
    match arguments {
        // Who mounted what is not kept: clients that vanish would stay for ever.
        Arguments::Null | Arguments::Umnt(_) | Arguments::UmntAll => Results::Nothing.encode(w),
        Arguments::Dump => Results::Dump(List::EMPTY).encode(w),
        Arguments::Mnt(Path(path)) => {
            let is_top = path.iter().all(|octet| *octet == b'/');
            let mounted = Mounted { root: root.as_file_handle(), flavors: Flavors::SYS };
            Results::Mnt(if is_top { Ok(mounted) } else { Err(Status::NoEnt) }).encode(w)
        }
        Arguments::Export => {
            let mut room = [0; 64];
            let mut exports = ListWriter::new(&mut room);
            let fits = exports.push(&Export { path: Path(TOP), hosts: List::EMPTY });
            debug_assert!(fits, "one short path");
            Results::Export(exports.finish()).encode(w)
        }
    }
}
