//! Tests of what an operator does to the tree: moves directories out of the export, and changes files.

use crate::directory::{self, Directory};
use crate::testing::{CONFIG, TempDir};

use super::*;

/// A served directory beside one that is not served.
struct World {
    place: TempDir,
    bed: Bed<Directory>,
}

impl World {
    fn new() -> Self {
        let place = TempDir::new();
        std::fs::create_dir(place.path().join("served")).unwrap();
        let served = place.path().join("served");
        let bed = bed_of(|_, _| Directory::open(&served, None, None, CONFIG).unwrap());
        let mut world = Self { place, bed };
        let (uid, gid) =
            directory::sole_owner().unwrap().map_or((0, 0), |owner| (owner.uid, owner.gid));
        world.bed.by(uid, gid);
        world
    }

    /// Moves a served directory out of the export, as an operator would.
    fn move_out(&self, name: &str) {
        let (from, to) = (self.place.path().join("served").join(name), self.outside(name));
        std::fs::rename(from, to).unwrap();
    }

    fn outside(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }
}

#[test]
fn names_in_a_directory_that_was_moved_out_are_neither_found_nor_changed() {
    let mut world = World::new();
    let bed = &mut world.bed;
    let root = bed.root();
    let dir = bed.dir(&root, "dir", 0o700);
    let inner = bed.dir(&dir, "inner", 0o700);
    let file = bed.file(&dir, "file");
    let inside = bed.file(&root, "inside");
    assert_eq!(bed.write(&file, 0, b"held"), Status::Ok);
    world.move_out("dir");
    let bed = &mut world.bed;
    // A verdict of one turn does not hold in the next.
    bed.service.backend.turn();
    for dir in [&dir, &inner] {
        assert_eq!(bed.find(dir, "file"), Err(Status::Stale));
        assert_eq!(bed.create(dir, "made", How::Guarded(mode(0o600))), Err(Status::Stale));
        let made = MkDir { at: dir.at("made"), attributes: mode(0o700) };
        assert_eq!(bed.status(Arguments::MkDir(made)), Status::Stale);
        assert_eq!(bed.symlink(dir, "made", b"to"), Err(Status::Stale));
        let what = Special::Fifo(mode(0o600));
        let pipe = MkNod { at: dir.at("made"), what };
        assert_eq!(bed.status(Arguments::MkNod(pipe)), Status::Stale);
        assert_eq!(bed.status(Arguments::Remove(dir.at("file"))), Status::Stale);
        assert_eq!(bed.status(Arguments::RmDir(dir.at("inner"))), Status::Stale);
        let link = Link { file: inside.get(), at: dir.at("made") };
        assert_eq!(bed.status(Arguments::Link(link)), Status::Stale);
        for (from, to) in [(dir.at("file"), root.at("back")), (root.at("inside"), dir.at("made"))] {
            assert_eq!(bed.status(Arguments::Rename(Rename { from, to })), Status::Stale);
        }
    }
    // An open file stays open.
    assert_eq!(bed.read(&file, 0, 9), Ok((b"held".to_vec(), true)));
    assert_eq!(bed.write(&file, 4, b" on"), Status::Ok);
    let names = std::fs::read_dir(world.outside("dir")).unwrap();
    let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "inner"]);
    assert_eq!(std::fs::read(world.outside("dir/file")).unwrap(), b"held on");
}

#[test]
fn a_directory_that_comes_back_is_served_again() {
    let mut world = World::new();
    let root = world.bed.root();
    let dir = world.bed.dir(&root, "dir", 0o700);
    world.bed.file(&dir, "file");
    world.move_out("dir");
    world.bed.service.backend.turn();
    assert_eq!(world.bed.find(&dir, "file"), Err(Status::Stale));
    std::fs::rename(world.outside("dir"), world.outside("served/again")).unwrap();
    world.bed.service.backend.turn();
    assert!(world.bed.find(&dir, "file").is_ok());
}

#[test]
fn calls_that_arrived_together_share_attributes_until_the_server_changes_a_file() {
    let mut world = World::new();
    let root = world.bed.root();
    let (file, other) = (world.bed.file(&root, "file"), world.bed.file(&root, "other"));
    let path = world.outside("served/file");
    let grow = |octets: usize| std::fs::write(&path, vec![7; octets]).unwrap();
    let bed = &mut world.bed;
    bed.arrivals = Some(1);
    assert_eq!(bed.look(&file).size, 0);
    // Both Calls had arrived before the file grew.
    grow(1);
    assert_eq!(bed.look(&file).size, 0);
    assert_eq!(bed.read(&file, 0, 9), Ok((Vec::new(), true)));
    bed.arrivals = Some(2);
    assert_eq!(bed.look(&file).size, 1);
    grow(2);
    assert_eq!(bed.write(&other, 0, b"x"), Status::Ok);
    assert_eq!((bed.look(&file).size, bed.look(&other).size), (2, 1));
    let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
    assert_eq!(bed.set(&file, cut), Status::Ok);
    assert_eq!(bed.look(&file).size, 1);
    let links = bed.look(&file).links;
    let link = Link { file: file.get(), at: root.at("link") };
    assert_eq!(bed.status(Arguments::Link(link)), Status::Ok);
    assert_eq!(bed.look(&file).links, links + 1);
    // A turn is the longest that attributes hold.
    grow(3);
    bed.service.turn();
    assert_eq!(bed.look(&file).size, 3);
    bed.arrivals = None;
    grow(4);
    assert_eq!(bed.look(&file).size, 4);
}
