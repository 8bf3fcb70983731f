//! The client, over a socket that blocks, with shorter ways to call.
//!
//! Methods return results or the status, and check all attributes that came with either.

use std::future::Future;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nfs3_client::io::{AsyncRead, AsyncWrite};
use nfs3_client::nfs3_types::mount::{dirpath, mountstat3};
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::{self, Opaque, Pack};
use nfs3_client::{MountClient, MountError, Nfs3Client};

use crate::bed::Server;

/// A connection to each of a server's ports.
pub(crate) struct Client {
    pub(crate) nfs: Nfs3Client<Socket>,
    pub(crate) mounts: MountClient<Socket>,
}

/// How a call ended.
pub(crate) type Ended<T> = Result<T, nfsstat3>;

/// A socket that blocks, so that every future on it is ready when it is first polled.
pub(crate) struct Socket(TcpStream);

impl Socket {
    pub(crate) fn connect(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        // A server that does not answer fails the test rather than holding it up for ever.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }
}

impl AsyncRead for Socket {
    async fn async_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }
}

impl AsyncWrite for Socket {
    async fn async_write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.write(octets)
    }
}

/// Returns what a future on a [`Socket`] ends with.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("its socket blocks"),
    }
}

/// Returns an AUTH_SYS claim to be this user, in this group.
pub(crate) fn claim((uid, gid): (u32, u32)) -> opaque_auth<'static> {
    let machinename = Opaque::borrowed(b"tests");
    opaque_auth::auth_unix(&auth_unix { stamp: 0, machinename, uid, gid, gids: vec![] })
}

/// Returns a name in a directory.
pub(crate) fn at<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.as_bytes().into() }
}

/// Returns attributes of which only permission bits are to be set.
pub(crate) fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

/// Returns attributes of which only the size is to be set.
pub(crate) fn size(size: u64) -> sattr3 {
    sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }
}

/// Arguments as they go over the wire.
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Pack for Raw {
    fn packed_size(&self) -> usize {
        self.0.len()
    }

    fn pack(&self, out: &mut impl Write) -> xdr_codec::Result<usize> {
        out.write_all(&self.0)?;
        Ok(self.0.len())
    }
}

/// Returns the octets of a value on the wire; most of the client's types cannot be compared otherwise.
pub(crate) fn packed(value: &impl Pack) -> Vec<u8> {
    let mut octets = Vec::new();
    value.pack(&mut octets).unwrap();
    octets
}

/// Returns the attributes of one kind that a Reply has in any case, and how the call ended.
macro_rules! ended {
    ($call:expr, $told:ident) => {
        match now($call).unwrap() {
            Nfs3Result::Ok(mut done) => (mem::take(&mut done.$told), Ok(done)),
            Nfs3Result::Err((status, mut rest)) => (mem::take(&mut rest.$told), Err(status)),
        }
    };
}

impl Client {
    pub(crate) fn new(server: &Server, user: (u32, u32)) -> Self {
        let (nfs, mount) = (Socket::connect(server.nfs), Socket::connect(server.mount));
        Self {
            nfs: Nfs3Client::new_with_auth(nfs, claim(user), opaque_auth::default()),
            mounts: MountClient::new_with_auth(mount, claim(user), opaque_auth::default()),
        }
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<nfs_fh3, mountstat3> {
        match now(self.mounts.mnt(dirpath(Opaque::borrowed(path.as_bytes())))) {
            Ok(mounted) => {
                // The server offers AUTH_SYS alone.
                assert_eq!(mounted.auth_flavors, [1]);
                Ok(nfs_fh3 { data: mounted.fhandle.0 })
            }
            Err(MountError::Denied(status)) => Err(status),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn attributes(&mut self, file: &nfs_fh3) -> Ended<fattr3> {
        match now(self.nfs.getattr(&file.clone().into())).unwrap() {
            Nfs3Result::Ok(done) => Ok(done.obj_attributes),
            Nfs3Result::Err((status, _)) => Err(status),
        }
    }

    pub(crate) fn set(
        &mut self,
        file: &nfs_fh3,
        new_attributes: sattr3,
        guard: sattrguard3,
    ) -> Ended<()> {
        self.watched(file, |client| {
            let asked = SETATTR3args { object: file.clone(), new_attributes, guard };
            ended!(client.nfs.setattr(&asked), obj_wcc)
        })
        .map(drop)
    }

    pub(crate) fn lookup(&mut self, dir: &nfs_fh3, name: &str) -> Ended<nfs_fh3> {
        let asked = LOOKUP3args { what: at(dir, name) };
        let (told, ended) = ended!(self.nfs.lookup(&asked), dir_attributes);
        self.check(dir, &told);
        ended.map(|found| {
            self.check(&found.object, &found.obj_attributes);
            found.object
        })
    }

    pub(crate) fn access(&mut self, file: &nfs_fh3, access: u32) -> Ended<u32> {
        let asked = ACCESS3args { object: file.clone(), access };
        let (told, ended) = ended!(self.nfs.access(&asked), obj_attributes);
        self.check(file, &told);
        ended.map(|granted| granted.access)
    }

    pub(crate) fn read_link(&mut self, link: &nfs_fh3) -> Ended<Vec<u8>> {
        let asked = READLINK3args { symlink: link.clone() };
        let (told, ended) = ended!(self.nfs.readlink(&asked), symlink_attributes);
        self.check(link, &told);
        ended.map(|link| link.data.0.into_owned())
    }

    /// Returns what was read, and whether the file ends there.
    pub(crate) fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Ended<(Vec<u8>, bool)> {
        let asked = READ3args { file: file.clone(), offset, count };
        let (told, ended) = ended!(self.nfs.read(&asked), file_attributes);
        self.check(file, &told);
        ended.map(|done| {
            assert_eq!(done.count as usize, done.data.len());
            (done.data.into_owned(), done.eof)
        })
    }

    pub(crate) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Ended<WRITE3resok> {
        let count = data.len().try_into().unwrap();
        let data = Opaque::borrowed(data);
        self.write_raw(&WRITE3args { file: file.clone(), offset, count, stable, data })
    }

    pub(crate) fn write_raw(&mut self, asked: &WRITE3args<'_>) -> Ended<WRITE3resok> {
        self.watched_for_long(&asked.file, |client| ended!(client.nfs.write(asked), file_wcc))
    }

    pub(crate) fn commit(&mut self, file: &nfs_fh3) -> Ended<writeverf3> {
        let asked = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let ended =
            self.watched_for_long(file, |client| ended!(client.nfs.commit(&asked), file_wcc));
        ended.map(|done| done.verf)
    }

    pub(crate) fn create(&mut self, dir: &nfs_fh3, name: &str, how: createhow3) -> Ended<nfs_fh3> {
        let asked = CREATE3args { where_: at(dir, name), how };
        let ended = self.watched(dir, |client| ended!(client.nfs.create(&asked), dir_wcc));
        ended.map(|made| self.made(dir, name, made.obj, &made.obj_attributes))
    }

    /// Makes a regular file with these permission bits.
    pub(crate) fn file(&mut self, dir: &nfs_fh3, name: &str, bits: u32) -> nfs_fh3 {
        self.create(dir, name, createhow3::GUARDED(mode(bits))).unwrap()
    }

    pub(crate) fn mkdir(&mut self, dir: &nfs_fh3, name: &str, bits: u32) -> Ended<nfs_fh3> {
        let asked = MKDIR3args { where_: at(dir, name), attributes: mode(bits) };
        let ended = self.watched(dir, |client| ended!(client.nfs.mkdir(&asked), dir_wcc));
        ended.map(|made| self.made(dir, name, made.obj, &made.obj_attributes))
    }

    pub(crate) fn symlink(&mut self, dir: &nfs_fh3, name: &str, to: &[u8]) -> Ended<nfs_fh3> {
        let symlink_attributes = sattr3::default();
        let symlink = symlinkdata3 { symlink_attributes, symlink_data: to.into() };
        let asked = SYMLINK3args { where_: at(dir, name), symlink };
        let ended = self.watched(dir, |client| ended!(client.nfs.symlink(&asked), dir_wcc));
        ended.map(|made| self.made(dir, name, made.obj, &made.obj_attributes))
    }

    pub(crate) fn mknod(&mut self, dir: &nfs_fh3, name: &str, what: mknoddata3) -> Ended<nfs_fh3> {
        let asked = MKNOD3args { where_: at(dir, name), what };
        let ended = self.watched(dir, |client| ended!(client.nfs.mknod(&asked), dir_wcc));
        ended.map(|made| self.made(dir, name, made.obj, &made.obj_attributes))
    }

    pub(crate) fn remove(&mut self, dir: &nfs_fh3, name: &str) -> Ended<()> {
        let asked = REMOVE3args { object: at(dir, name) };
        self.watched(dir, |client| ended!(client.nfs.remove(&asked), dir_wcc)).map(drop)
    }

    pub(crate) fn rmdir(&mut self, dir: &nfs_fh3, name: &str) -> Ended<()> {
        let asked = RMDIR3args { object: at(dir, name) };
        self.watched(dir, |client| ended!(client.nfs.rmdir(&asked), dir_wcc)).map(drop)
    }

    pub(crate) fn rename(
        &mut self,
        (from_dir, from): (&nfs_fh3, &str),
        (to_dir, to): (&nfs_fh3, &str),
    ) -> Ended<()> {
        let asked = RENAME3args { from: at(from_dir, from), to: at(to_dir, to) };
        let mut other = wcc_data::default();
        let ended =
            self.watched(from_dir, |client| match now(client.nfs.rename(&asked)).unwrap() {
                Nfs3Result::Ok(done) => {
                    other = done.todir_wcc;
                    (done.fromdir_wcc, Ok(()))
                }
                Nfs3Result::Err((status, rest)) => {
                    other = rest.todir_wcc;
                    (rest.fromdir_wcc, Err(status))
                }
            });
        if ended.is_ok() || other.after.is_some() {
            self.check(to_dir, &other.after);
        }
        ended
    }

    pub(crate) fn link(&mut self, file: &nfs_fh3, dir: &nfs_fh3, name: &str) -> Ended<()> {
        let asked = LINK3args { file: file.clone(), link: at(dir, name) };
        let mut told = post_op_attr::default();
        let ended = self.watched(dir, |client| match now(client.nfs.link(&asked)).unwrap() {
            Nfs3Result::Ok(done) => {
                told = done.file_attributes;
                (done.linkdir_wcc, Ok(()))
            }
            Nfs3Result::Err((status, rest)) => {
                told = rest.file_attributes;
                (rest.linkdir_wcc, Err(status))
            }
        });
        if ended.is_ok() || told.is_some() {
            self.check(file, &told);
        }
        ended
    }

    /// Checks what a directory tells about a file that was just made in it. Returns the file.
    fn made(
        &mut self,
        dir: &nfs_fh3,
        name: &str,
        file: post_op_fh3,
        told: &post_op_attr,
    ) -> nfs_fh3 {
        let file = file.unwrap();
        self.check(&file, told);
        assert_eq!(self.lookup(dir, name).as_ref(), Ok(&file));
        file
    }

    /// Checks attributes that came beside results: those of GETATTR, or none if it fails.
    pub(crate) fn check(&mut self, file: &nfs_fh3, told: &post_op_attr) {
        let actual = self.attributes(file).map_or(Nfs3Option::None, Nfs3Option::Some);
        assert_eq!(packed(told), packed(&actual), "{told:?} is not {actual:?}");
    }

    /// Makes a call that may change a file, and checks what it tells of the file before and after.
    fn watched<T>(
        &mut self,
        file: &nfs_fh3,
        call: impl FnOnce(&mut Self) -> (wcc_data, Ended<T>),
    ) -> Ended<T> {
        let (told, before, ended) = self.watched_closely(file, call);
        assert_eq!(told, before);
        ended
    }

    /// Like [`watched`](Self::watched), for a call that ends later than it begins: where the file may have been changed
    /// by others meanwhile, nothing is told of it before.
    fn watched_for_long<T>(
        &mut self,
        file: &nfs_fh3,
        call: impl FnOnce(&mut Self) -> (wcc_data, Ended<T>),
    ) -> Ended<T> {
        let (told, before, ended) = self.watched_closely(file, call);
        assert!(told == before || told == packed(&pre_op_attr::None));
        ended
    }

    /// Makes a call that may change a file, and checks what it tells of the file after. Returns what it tells of the
    /// file before, and what is right.
    fn watched_closely<T>(
        &mut self,
        file: &nfs_fh3,
        call: impl FnOnce(&mut Self) -> (wcc_data, Ended<T>),
    ) -> (Vec<u8>, Vec<u8>, Ended<T>) {
        let before = match self.attributes(file) {
            Ok(fattr3 { size, mtime, ctime, .. }) => {
                Nfs3Option::Some(wcc_attr { size, mtime, ctime })
            }
            Err(_) => Nfs3Option::None,
        };
        let (told, ended) = call(self);
        self.check(file, &told.after);
        (packed(&told.before), packed(&before), ended)
    }
}
