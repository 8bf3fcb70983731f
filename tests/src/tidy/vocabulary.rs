//! The words a provider may use: those of an RDMA device, and none of RPC.

use super::Breach;
use crate::source::{Workspace, words};

/// Checks that a provider names nothing of the protocol library but RDMA verbs, instants, and the protocols that an
/// RNIC speaks itself. Each path must name its module, so that this can be seen.
pub fn providers_know_verbs(workspace: &Workspace) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, source) in workspace.rust().filter(|(path, _)| is_of_providers(path)) {
        for at in words(&source.code, LIBRARY) {
            let behind = &source.code[at + LIBRARY.len()..];
            let module = behind.strip_prefix("::").unwrap_or_default();
            let module = &module[..module.find(|c: char| !is_of_name(c)).unwrap_or(module.len())];
            if !KNOWN.contains(&module) {
                let what = format!("a provider names `{LIBRARY}::{module}`");
                found.push(Breach::at(path, &source.text, at, what));
            }
        }
    }
    found
}

fn is_of_providers(path: &str) -> bool {
    path == CONTRACT || path.starts_with(PROVIDERS)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

const CONTRACT: &str = "runtime/src/provider.rs";
const PROVIDERS: &str = "runtime/src/provider/";
const LIBRARY: &str = "haulage_proto";
const KNOWN: [&str; 3] = ["iwarp", "time", "verbs"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_knows_of_rpc_is_found() {
        let found = |path, text| {
            let found = providers_know_verbs(&Workspace::of(&[(path, text)]));
            found.into_iter().map(|breach| (breach.line, breach.what)).collect::<Vec<_>>()
        };
        let good = "use haulage_proto::verbs::{Handle, HeaderPatch};\n// haulage_proto::rpc\nfn f() -> haulage_proto::time::Instant;\n";
        let bad = [
            "use haulage_proto::negotiate::Unchunked;\n",
            "fn f(of: haulage_proto::rpc::Binding) {}\n",
            "use haulage_proto::{rpc, verbs};\n",
            "use haulage_proto as library;\n",
            "use haulage_proto::v2::header::Unchunked;\n",
            "use haulage_proto::verbs_of_rpc::Unchunked;\n",
        ];
        let paths = [CONTRACT, "runtime/src/provider/shm/ring.rs", "runtime/src/provider/sim.rs"];
        for path in paths {
            assert_eq!(found(path, good), []);
            for text in bad {
                assert_eq!(found(path, text).len(), 1, "{path}: {text}");
            }
        }
        let what = "a provider names `haulage_proto::rpc`".to_owned();
        assert_eq!(found(CONTRACT, "\nuse haulage_proto::rpc;\n"), [(2, what)]);
        for text in bad {
            assert_eq!(found("runtime/src/core.rs", text), [], "the core knows both");
        }
    }
}
