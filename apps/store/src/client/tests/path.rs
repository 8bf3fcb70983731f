//! Finding files by path.

use super::*;
use crate::nfs3::FileType;

/// A tree: `/a/b/file`, and links of many kinds.
fn tree() -> Client<Near> {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    let a = client.make_dir(&root, "a");
    let b = client.make_dir(&a, "b");
    client.make_file(&b, "file", b"found");
    client.make_file(&root, "top", b"top");
    client.make_link(&root, "to-b", "a/b");
    client.make_link(&b, "up", "../../top");
    client.make_link(&b, "absolute", "/a/b/file");
    client.make_link(&b, "beyond", "../../../../../top");
    client.make_link(&root, "dangling", "a/new");
    client.make_link(&root, "loop", "loop");
    client.make_link(&root, "to-to-b", "to-b/");
    client.make_link(&root, "long", &format!("a/{}b//file", "./".repeat(2000)));
    client
}

/// Returns the data of the regular file at a path, or the kind of another file.
fn found(client: &mut Client<Near>, path: &str, last: Last) -> String {
    match client.find(path.as_bytes(), last) {
        Ok(ResolvedPath::There { found, .. }) if found.attributes.kind == FileType::Regular => {
            let octets = client.contents(&found.file, found.attributes.size).unwrap();
            String::from_utf8(octets).unwrap()
        }
        Ok(ResolvedPath::There { found, .. }) => format!("{:?}", found.attributes.kind),
        Ok(ResolvedPath::Free(DirEntry { name, .. })) => {
            format!("free: {}", String::from_utf8(name).unwrap())
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_path_leads_where_it_should() {
    let mut client = tree();
    for (path, follow, leads) in [
        ("", true, "Directory"),
        ("/", true, "Directory"),
        ("/a/b/file", true, "found"),
        ("a//b/./file", true, "found"),
        ("/a/b/../b/file", true, "found"),
        ("/../../top", true, "top"),
        ("/a/b/", true, "Directory"),
        ("/to-b/file", true, "found"),
        ("/to-b/..", true, "Directory"),
        // `..` leads back through the link by which the walk came.
        ("/to-b/../b/file", true, "found"),
        ("/to-to-b/up", true, "top"),
        ("/to-b/absolute", true, "found"),
        ("/to-b/beyond", true, "top"),
        ("/long", true, "found"),
        ("/to-b", true, "Directory"),
        ("/to-b", false, "Symlink"),
        // A path that ends with a slash means a directory.
        ("/to-b/", false, "Directory"),
        ("/a/new", true, "free: new"),
        ("/dangling", true, "free: new"),
        ("/dangling", false, "Symlink"),
        ("/loop", false, "Symlink"),
        ("/a/new/x", true, "no such file: /a/new"),
        ("/a/new/", true, "no such file: /a/new"),
        ("/to-b/file/x", true, "not a directory: /a/b/file"),
        ("/top/", true, "not a directory: /top"),
        ("/top/..", true, "not a directory: /top"),
        ("/dangling/x", true, "no such file: /a/new"),
        ("/loop", true, "too many symbolic links: /loop"),
    ] {
        let last = if follow { Last::Follow } else { Last::Keep };
        assert_eq!(found(&mut client, path, last), leads, "{path} {last:?}");
    }
}

#[test]
fn neither_dots_nor_names_beyond_measure_are_the_servers_to_look_up() {
    let mut client = tree();
    client.requester.asked.clear();
    found(&mut client, "/a/../a/./b/..", Last::Follow);
    assert_eq!(client.requester.count(Procedure::Lookup), 3);
    for (length, leads) in [(255, "free: "), (256, "file name too long: /a/")] {
        let name = "x".repeat(length);
        let found = found(&mut client, &format!("/a/{name}"), Last::Follow);
        assert_eq!(found, format!("{leads}{name}"));
    }
    assert_eq!(client.requester.count(Procedure::Lookup), 3 + 3);
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    client.make_file(&root, "0", b"end");
    for link in 1..=41 {
        client.make_link(&root, &link.to_string(), &(link - 1).to_string());
    }
    assert_eq!(found(&mut client, "40", Last::Follow), "end");
    assert_eq!(found(&mut client, "41", Last::Follow), "too many symbolic links: 41");
}

#[test]
fn only_a_file_that_is_there_is_found() {
    let mut client = tree();
    assert!(client.find_file(b"/a/b/file", Last::Follow).is_ok());
    let error = client.find_file(b"/dangling", Last::Follow).unwrap_err();
    assert_eq!(error.to_string(), "no such file: /dangling");
}

#[test]
fn an_empty_link_leads_nowhere() {
    let mut client = tree();
    client.requester.edit = Box::new(|_, results| match results {
        Results::ReadLink(Ok(target)) => {
            let path = Path(Item::Unreduced(b""));
            let empty = crate::nfs3::results::Target { path, ..*target };
            refusal(&Results::ReadLink(Ok(empty)))
        }
        _ => None,
    });
    assert_eq!(found(&mut client, "/dangling", Last::Follow), "no such file: /dangling");
}
