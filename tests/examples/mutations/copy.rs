//! A copy of the workspace, to which mutations are applied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A copy of the workspace, in `target/mutations` of the original.
pub(crate) struct Copy {
    home: PathBuf,
}

impl Copy {
    /// Copies the workspace at `root`. Files of an earlier copy that are the same stay untouched, so that they need not
    /// be built again.
    pub(crate) fn of(root: &Path) -> io::Result<Self> {
        let home = root.join("target/mutations");
        let tree = home.join("tree");
        fs::create_dir_all(&tree)?;
        let wanted = files(root)?;
        for path in files(&tree)?.difference(&wanted) {
            fs::remove_file(tree.join(path))?;
        }
        let copy = Self { home };
        for path in wanted {
            copy.write(&path.to_string_lossy(), fs::read(root.join(&path))?)?;
        }
        Ok(copy)
    }

    /// Writes one file of the copy, unless it holds `octets` already.
    pub(crate) fn write(&self, path: &str, octets: impl AsRef<[u8]>) -> io::Result<()> {
        let file = self.tree().join(path);
        if fs::read(&file).is_ok_and(|there| there == octets.as_ref()) {
            return Ok(());
        }
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(file, octets)
    }

    /// Returns the directory of the copied workspace.
    pub(crate) fn tree(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// Returns the target directory for builds of the copy.
    pub(crate) fn target(&self) -> PathBuf {
        self.home.join("target")
    }
}

/// Returns the paths of all files below `root`, without `.git` and `target` directories.
fn files(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == ".git" || name == "target" {
                continue;
            }
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else if let Ok(inside) = path.strip_prefix(root) {
                found.insert(inside.to_path_buf());
            }
        }
    }
    Ok(found)
}
