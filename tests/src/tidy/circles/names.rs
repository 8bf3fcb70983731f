//! Resolution of the names in a crate to the files that define them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::block;
use super::Needs;
use crate::source::{Workspace, words};

/// Returns, for each file of the crate in `home`, the other files of the crate that it needs.
pub(super) fn needs(workspace: &Workspace, home: &str) -> Needs {
    let tree = Tree::read(workspace, home);
    let mut found = Needs::new();
    for (place, module) in &tree.modules {
        let others = tree.needs(place, module).into_iter().filter(|other| *other != module.file);
        found.insert(module.file.clone(), others.map(str::to_owned).collect());
    }
    found
}

/// The names that lead from the crate's root to a module or an item.
type ModulePath = Vec<String>;

/// The modules of a crate that have a file of their own and are not for tests only.
struct Tree {
    modules: BTreeMap<ModulePath, Module>,
}

struct Module {
    file: String,
    /// The code without tests, `use` declarations and `mod` lines.
    code: String,
    uses: Vec<Use>,
}

/// One name that a `use` declaration brings in.
struct Use {
    path: Vec<String>,
    /// `*` if it brings in all names of a module.
    name: String,
    passes_on: bool,
}

impl Tree {
    fn read(workspace: &Workspace, home: &str) -> Self {
        let mut modules = BTreeMap::new();
        let mut pending = vec![ModulePath::new()];
        while let Some(place) = pending.pop() {
            let inside = if place.is_empty() { "lib".to_owned() } else { place.join("/") };
            let file = format!("{home}/src/{inside}.rs");
            let Some(source) = workspace.get(&file) else { continue };
            let code = without_tests(&source.code);
            for at in words(&code, "mod") {
                let rest = &code[at + "mod".len()..];
                if let Some(end) = rest.find([';', '{']).filter(|&end| rest[end..].starts_with(';'))
                {
                    pending.push(child(&place, rest[..end].trim()));
                }
            }
            let (code, uses) = split_uses(&code);
            modules.insert(place, Module { file, code, uses });
        }
        Self { modules }
    }

    /// Returns the files that define the names in `module`, its own file among them.
    fn needs(&self, place: &ModulePath, module: &Module) -> BTreeSet<&str> {
        let paths = paths(&module.code);
        let mut found = BTreeSet::new();
        for used in &module.uses {
            let mut path = used.path.clone();
            if used.name == "*" {
                path.push(String::new()); // any item of the module
            }
            let Some(to) = self.resolve(place, &path, DEPTH) else { continue };
            let is_below = to.0.starts_with(place);
            let is_used = || paths.iter().any(|path| path[0] == used.name);
            if !used.passes_on || !is_below || is_used() {
                found.insert(to.1);
                found.extend(self.written(place, &path));
            }
        }
        let named = paths.iter().filter(|path| path.len() > 1);
        found.extend(named.filter_map(|path| self.resolve(place, path, DEPTH)).map(|to| to.1));
        found
    }

    /// Returns the file of the module in which a reader looks for the item at `path`: the last one that the path names.
    fn written(&self, from: &[String], path: &[String]) -> Option<&str> {
        let (first, mut rest) = path.split_first()?;
        let (_, up) = from.split_last().unzip();
        let mut at = match first.as_str() {
            "crate" => ModulePath::new(),
            "self" => from.to_vec(),
            "super" => {
                let above = rest.iter().take_while(|next| *next == "super").count();
                rest = &rest[above..];
                let length = up?.len().checked_sub(above)?;
                from[..length].to_vec()
            }
            name => child(from, name),
        };
        while let Some((name, behind)) = rest.split_first() {
            let below = child(&at, name);
            if behind.is_empty() || !self.modules.contains_key(&below) {
                break;
            }
            (at, rest) = (below, behind);
        }
        Some(&self.modules.get(&at)?.file)
    }

    /// Returns the place and the file of the module that defines the item at `path`, seen from the module at `from`;
    /// `None` if `path` leads out of the crate, or names a module.
    fn resolve(
        &self,
        from: &[String],
        path: &[String],
        depth: usize,
    ) -> Option<(&ModulePath, &str)> {
        let (first, rest) = path.split_first()?;
        let up = from.split_last().map(|(_, up)| up);
        match first.as_str() {
            "crate" => self.find(&[], rest, depth),
            "self" => self.find(from, rest, depth),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                self.resolve(up?, rest, depth)
            }
            "super" => self.find(up?, rest, depth),
            name if self.modules.contains_key(&child(from, name)) => self.find(from, path, depth),
            name => {
                let module = self.modules.get(from)?;
                module.uses.iter().find(|u| u.name == name && u.path[0] != name)?;
                self.find(from, path, depth)
            }
        }
    }

    /// Like `resolve`, but looks up every name inside the module at `at`.
    fn find(&self, at: &[String], path: &[String], depth: usize) -> Option<(&ModulePath, &str)> {
        let (place, module) = self.modules.get_key_value(at)?;
        let (name, rest) = path.split_first()?;
        let depth = depth.checked_sub(1)?;
        let below = child(at, name);
        if !rest.is_empty() && self.modules.contains_key(&below) {
            return self.find(&below, rest, depth);
        }
        if let Some(used) = module.uses.iter().find(|used| used.name == *name) {
            let longer: Vec<_> = used.path.iter().chain(rest).cloned().collect();
            return self.resolve(at, &longer, depth);
        }
        if self.modules.contains_key(&below) {
            return None;
        }
        if defines(&module.code, name) {
            return Some((place, &module.file));
        }
        let globs = module.uses.iter().filter(|used| used.name == "*");
        let mut of_globs = globs.filter_map(|used| {
            let longer: Vec<_> = used.path.iter().chain(path).cloned().collect();
            self.resolve(at, &longer, depth)
        });
        let is_there =
            |place: &ModulePath| self.modules.get(place).is_some_and(|m| defines(&m.code, name));
        of_globs.find(|(place, _)| is_there(place)).or(Some((place, &module.file)))
    }
}

/// Maximum number of re-exports followed from one name; a longer chain is taken for a circle.
const DEPTH: usize = 32;

fn child(place: &[String], name: &str) -> ModulePath {
    place.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns whether `code` declares an item called `name`.
fn defines(code: &str, name: &str) -> bool {
    let kinds =
        ["struct", "enum", "union", "trait", "type", "fn", "const", "static", "macro_rules!"];
    words(code, name).any(|at| kinds.iter().any(|kind| code[..at].trim_end().ends_with(kind)))
}

/// Blanks every item that is compiled for tests only.
fn without_tests(code: &str) -> String {
    let mut left = code.to_owned();
    while let Some(at) = left.find("#[cfg(test)]") {
        let rest = &left[at..];
        let open = rest.find([';', '{']).unwrap_or(rest.len());
        let length = match block(&rest[open.min(rest.len())..]) {
            Some(length) => open + length,
            None => (open + 1).min(rest.len()),
        };
        left.replace_range(at..at + length, &" ".repeat(length));
    }
    left
}

/// Takes the `use` declarations out of `code`, and blanks the `mod` lines.
fn split_uses(code: &str) -> (String, Vec<Use>) {
    let mut rest = code.to_owned();
    let mut uses = Vec::new();
    for at in words(code, "mod") {
        let end = code[at..].find([';', '{']).map_or(code.len(), |length| at + length);
        rest.replace_range(at..end, &" ".repeat(end - at));
    }
    for at in words(code, "use") {
        let tree = &code[at + "use".len()..];
        let Some(end) = tree.find(';').filter(|_| tree.starts_with(char::is_whitespace)) else {
            continue;
        };
        let before = code[..at].rsplit(['\n', ';', '{', '}']).next().unwrap_or_default();
        let passes_on = before.trim_start().starts_with("pub");
        let tree: String = tree[..end].split_whitespace().collect::<Vec<_>>().join(" ");
        leaves(&[], &tree, passes_on, &mut uses);
        let end = at + "use".len() + end;
        rest.replace_range(at..end, &" ".repeat(end - at));
    }
    (rest, uses)
}

/// Adds each name that `tree`, the tree of a `use` declaration, brings in.
fn leaves(before: &[String], tree: &str, passes_on: bool, found: &mut Vec<Use>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let path: Vec<_> = before.iter().cloned().chain(segments(head)).collect();
        for part in parts(group.strip_suffix('}').unwrap_or(group)) {
            leaves(&path, part, passes_on, found);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path: Vec<_> = before.iter().cloned().chain(segments(path)).collect();
    let is_itself = path.len() > 1 && path.last().is_some_and(|last| last == "self");
    let is_glob = path.last().is_some_and(|last| last == "*");
    if is_itself || is_glob {
        path.pop();
    }
    let name = match path.last() {
        _ if is_glob => "*",
        _ if !alias.is_empty() => alias.trim(),
        Some(last) => last,
        None => return,
    };
    found.push(Use { name: name.to_owned(), path, passes_on });
}

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty())
}

/// Splits the inside of a group at its own commas.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut from) = (0_usize, 0);
    let mut found = Vec::new();
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&group[from..]);
    found.retain(|part| !part.trim().is_empty());
    found
}

/// Returns every path in `code`, single names included. A name behind a dot is no path, nor is the name of a declared
/// function.
fn paths(code: &str) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut rest = code;
    let mut declares = false;
    while let Some(at) = rest.find(is_word) {
        let before = rest[..at].trim_end();
        let is_member = before.ends_with("::") || before.ends_with('.') && !before.ends_with("..");
        let is_declared = declares && before.is_empty();
        rest = &rest[at..];
        let mut path = Vec::new();
        loop {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            path.push(rest[..end].to_owned());
            rest = &rest[end..];
            let next = rest.trim_start().strip_prefix("::").map(str::trim_start);
            match next.filter(|next| next.starts_with(is_word)) {
                Some(next) => rest = next,
                None => break,
            }
        }
        declares = path == ["fn"];
        if !is_member && !is_declared {
            found.insert(path);
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
