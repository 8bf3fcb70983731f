//! SETATTR of the files of a directory tree.

use std::rc::Rc;
use std::sync::Arc;

use super::changes::{Change, Changes, Plan, Then};
use super::closing::DEAR;
use super::helpers::Cost;
use super::jobs::acts::{Act, Set};
use super::system::look::check_end;
use super::tree::Tree;
use crate::access::Caller;
use crate::backend::Setting;
use crate::handle::FileId;
use crate::nfs3::Status;

impl Changes {
    /// Changes attributes.
    pub(super) fn set(
        &self,
        tree: &mut Tree,
        caller: &Caller,
        file: FileId,
        setting: &Setting,
    ) -> Result<Plan, Status> {
        self.check_uncut(file)?;
        let (node, look) = tree.find(file)?;
        let changed = self.before_change(tree, &node, look.attributes.kind)?;
        let to = &setting.to;
        if let Some(size) = to.size {
            look.regular()?;
            check_end(size, 0)?;
        }
        let is_cut = to.size.is_some_and(|size| size < look.attributes.size);
        let is_dear = is_cut && look.attributes.used >= DEAR;
        let cost = if is_dear { Cost::Dear } else { Cost::Little };
        let act = Act::Set(Set {
            by: self.by(caller),
            descriptors: Arc::clone(&tree.files.descriptors),
            place: node.another_place()?,
            setting: *setting,
            changed,
        });
        let then = Then::Set { node: Rc::clone(&node), mode: to.mode };
        let change = Change { files: vec![node.id], name: None, cost, then };
        Ok((act, change))
    }
}
