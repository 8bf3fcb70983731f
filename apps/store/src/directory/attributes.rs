//! SETATTR of the files of a directory tree.

use std::rc::Rc;
use std::sync::Arc;

use super::Directory;
use super::acts::{Act, Set};
use super::changes::{Change, Then};
use super::closing::DEAR;
use super::data::check_end;
use super::helpers::Cost;
use crate::backend::Ticket;
use crate::handle::FileId;
use crate::nfs3::{SetAttributes, Status};

impl Directory {
    /// Changes attributes before it returns.
    pub(super) fn set(&mut self, file: FileId, to: &SetAttributes) -> Result<(), Status> {
        let (act, change) = self.setting(file, to)?;
        self.change_at_once(&act, &change).map(drop)
    }

    /// Changes attributes. Returns whether all is done, and not left to a helper.
    pub(super) fn begin_set(
        &mut self,
        ticket: Ticket,
        file: FileId,
        to: &SetAttributes,
    ) -> Result<Option<()>, Status> {
        let (act, change) = self.setting(file, to)?;
        Ok(self.begin_change(ticket, act, change)?.map(drop))
    }

    /// Opens what a change of attributes takes.
    fn setting(&mut self, file: FileId, to: &SetAttributes) -> Result<(Act, Change), Status> {
        self.check_uncut(file)?;
        let (node, look) = self.tree.find(file)?;
        let changed = self.before_change(&node, look.attributes.kind)?;
        let size = to.size.map(|size| {
            look.regular()?;
            check_end(size, 0)?;
            Ok::<_, Status>((node.writer(&self.tree.descriptors)?, size))
        });
        let size = size.transpose()?;
        let is_cut = to.size.is_some_and(|size| size < look.attributes.size);
        let is_dear = is_cut && look.attributes.used >= DEAR;
        let cost = if is_dear { Cost::Dear } else { Cost::Little };
        let act = Act::Set(Set {
            descriptors: Arc::clone(&self.tree.descriptors),
            place: node.another_place()?,
            uid: to.uid,
            gid: to.gid,
            size,
            mode: to.mode,
            atime: to.atime,
            mtime: to.mtime,
            changed,
        });
        let then = Then::Set { node: Rc::clone(&node), mode: to.mode };
        Ok((act, Change { files: vec![node.id], name: None, cost, then }))
    }
}
