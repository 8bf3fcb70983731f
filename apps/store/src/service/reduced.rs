//! The argument of a Call that may be reduced.

use haulage_mr_pool::Local;
use haulage_proto::chunk::Item;

use crate::nfs3::Arguments;

/// Returns whether the data of a Call was reduced but not placed, for lack of memory.
pub(super) fn lacks_data(arguments: &Arguments<'_>, placed: Option<&Local>) -> bool {
    placed.is_none() && matches!(data(arguments), Some(Item::Reduced { .. }))
}

/// Returns the argument of a Call that may be reduced.
pub(super) const fn data<'a>(arguments: &Arguments<'a>) -> Option<Item<'a>> {
    match arguments {
        Arguments::Write(write) => Some(write.data.0),
        Arguments::Symlink(link) => Some(link.path.0),
        _ => None,
    }
}
