//! Printing of a server's files and file systems.

use haulage_store::client::listing::Entry;
use haulage_store::client::{Client, Error, File, Found, Requester};
use haulage_store::nfs3::results::FsStat;
use haulage_store::nfs3::{Attributes, FileType, Time};

use crate::output::table::{self, Align};
use crate::output::{Names, json};

/// A file with its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// A name, or a path.
    pub name: Vec<u8>,
    fileid: u64,
    /// The file and its attributes, unless the server refuses them.
    file: Option<(File, Attributes)>,
    /// The path in a symbolic link.
    target: Option<Vec<u8>>,
}

impl From<Entry> for Named {
    fn from(Entry { name, fileid, file }: Entry) -> Self {
        Self { name, fileid, file, target: None }
    }
}

impl Named {
    /// Names a file by the path at which it was found.
    pub fn of(path: &[u8], found: &Found) -> Self {
        let file = Some((found.file, found.attributes));
        Self { name: path.to_vec(), fileid: found.attributes.fileid, file, target: None }
    }

    /// Reads the path in the file, if it is a symbolic link.
    pub fn with_target<R: Requester>(self, client: &mut Client<R>) -> Result<Self, Error> {
        let target = match &self.file {
            Some((file, attributes)) if attributes.kind == FileType::Symlink => {
                match client.read_link(file) {
                    // The link may be gone, or may not be read.
                    Err(error) if error.status().is_some() => None,
                    other => Some(other?),
                }
            }
            _ => None,
        };
        Ok(Self { target, ..self })
    }

    /// Returns one line of a table.
    fn to_row(&self, names: Names) -> Vec<String> {
        let name = match &self.target {
            Some(target) => format!("{} -> {}", names.show(&self.name), names.show(target)),
            None => names.show(&self.name).into_owned(),
        };
        let Some((_, it)) = &self.file else {
            let unknown = std::iter::repeat_n("?".to_owned(), COLUMNS.len() - 1);
            return unknown.chain([name]).collect();
        };
        vec![
            permissions(it),
            it.links.to_string(),
            it.uid.to_string(),
            it.gid.to_string(),
            it.size.to_string(),
            moment(it.mtime),
            name,
        ]
    }

    /// Returns a table of all attributes.
    pub fn to_text(&self, names: Names) -> String {
        let mut rows = vec![vec!["path".to_owned(), names.show(&self.name).into_owned()]];
        let mut row = |what: &str, is: String| rows.push(vec![what.to_owned(), is]);
        row("number", self.fileid.to_string());
        if let Some((_, it)) = &self.file {
            row("kind", kind(it.kind).to_owned());
            row("mode", format!("{:04o} {}", it.mode & MODE, permissions(it)));
            row("links", it.links.to_string());
            row("owner", it.uid.to_string());
            row("group", it.gid.to_string());
            row("size", it.size.to_string());
            row("used", it.used.to_string());
            row("device", format!("{}:{}", it.device.major, it.device.minor));
            row("file system", format!("{:x}", it.fsid));
            row("read", moment(it.atime));
            row("modified", moment(it.mtime));
            row("changed", moment(it.ctime));
        }
        if let Some(target) = &self.target {
            row("leads to", names.show(target).into_owned());
        }
        table::layout(&[("what", Align::Left), ("value", Align::Left)], &rows)
    }

    /// Returns a JSON object of all attributes.
    pub fn to_json(&self) -> String {
        json::object(|o| {
            text(o, "name", &self.name);
            o.count("fileid", self.fileid);
            if let Some((_, it)) = &self.file {
                o.text("kind", kind(it.kind)).text("mode", &format!("{:04o}", it.mode & MODE));
                o.count("links", it.links).count("uid", it.uid).count("gid", it.gid);
                o.count("size", it.size).count("used", it.used).count("fsid", it.fsid);
                for (key, time) in [("atime", it.atime), ("mtime", it.mtime), ("ctime", it.ctime)] {
                    o.json(key, &format!("{}.{:09}", time.seconds, time.nanoseconds));
                }
            }
            if let Some(target) = &self.target {
                text(o, "target", target);
            }
        })
    }
}

/// Returns a table of files.
pub fn listing(files: &[Named], names: Names) -> String {
    let rows: Vec<_> = files.iter().map(|file| file.to_row(names)).collect();
    table::layout(&COLUMNS, &rows)
}

/// Returns a table of the total and free space, and of the number of files. The percentage is that of `df`: what is used
/// of what callers could use, rounded up.
pub fn room_text(room: &FsStat) -> String {
    let table = |of, total: u64, free, available: u64| {
        let used = total.saturating_sub(free);
        let usable = u128::from(used) + u128::from(available);
        let percent = (usable > 0).then(|| (u128::from(used) * 100).div_ceil(usable));
        let percent = percent.map_or_else(|| "-".to_owned(), |percent| percent.to_string());
        let row = vec![total.to_string(), used.to_string(), available.to_string(), percent];
        table::layout(
            &[of, "used", "available", "used %"].map(|title| (title, Align::Right)),
            &[row],
        )
    };
    let bytes = table("bytes", room.total_bytes, room.free_bytes, room.available_bytes);
    bytes + &table("files", room.total_files, room.free_files, room.available_files)
}

/// Returns a JSON object of the total and free space.
pub fn room_json(room: &FsStat) -> String {
    json::object(|o| {
        o.count("total_bytes", room.total_bytes).count("free_bytes", room.free_bytes);
        o.count("available_bytes", room.available_bytes);
        o.count("total_files", room.total_files).count("free_files", room.free_files);
        o.count("available_files", room.available_files);
    })
}

/// Adds octets as a string; if they are no UTF-8, a second member has them in hex.
fn text(o: &mut json::Object, key: &str, octets: &[u8]) {
    let lossy = String::from_utf8_lossy(octets);
    o.text(key, &lossy);
    if lossy.as_bytes() != octets {
        let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        o.text(&format!("{key}_hex"), &hex);
    }
}

const fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Block => "block",
        FileType::Character => "character",
        FileType::Symlink => "symlink",
        FileType::Socket => "socket",
        FileType::Fifo => "fifo",
    }
}

/// Formats kind and mode like `ls -l`.
fn permissions(it: &Attributes) -> String {
    let kind = match it.kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Block => 'b',
        FileType::Character => 'c',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = it.mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (bits & 1 != 0, it.mode & special != 0) {
            (false, false) => '-',
            (true, false) => 'x',
            (false, true) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// Formats a time in UTC.
fn moment(time: Time) -> String {
    let (days, rest) = (time.seconds / DAY, time.seconds % DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the year, month and day that are `days` days after the start of 1970.
const fn date(days: u32) -> (u32, u32, u32) {
    // Years begin in March here, so that a leap day comes last.
    let days = days + DAYS_TO_1970;
    let (era, day) = (days / DAYS_IN_ERA, days % DAYS_IN_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / (DAYS_IN_ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

const DAY: u32 = 86_400;
/// Days in 400 years.
const DAYS_IN_ERA: u32 = 146_097;
/// Days from the first of March of the year 0 to the start of 1970.
const DAYS_TO_1970: u32 = 719_468;

/// The permission bits of a mode.
const MODE: u32 = 0o7777;

const COLUMNS: [(&str, Align); 7] = [
    ("mode", Align::Left),
    ("links", Align::Right),
    ("owner", Align::Right),
    ("group", Align::Right),
    ("size", Align::Right),
    ("modified (UTC)", Align::Left),
    ("name", Align::Left),
];

#[cfg(test)]
mod tests {
    use haulage_store::nfs3::Device;

    use super::*;

    fn attributes(kind: FileType, mode: u32) -> Attributes {
        let time = Time { seconds: 951_827_696, nanoseconds: 5 };
        Attributes {
            kind,
            mode,
            links: 1,
            uid: 1000,
            gid: 100,
            size: 12,
            used: 4096,
            device: Device::default(),
            fsid: 1,
            fileid: 7,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn named(name: &[u8], target: Option<&[u8]>) -> Named {
        let kind = if target.is_some() { FileType::Symlink } else { FileType::Regular };
        let file = haulage_store::nfs3::FileHandle::default().into();
        let file = Some((file, attributes(kind, 0o644)));
        Named { name: name.to_vec(), fileid: 7, file, target: target.map(<[u8]>::to_vec) }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_827_696, "2000-02-29 12:34:56"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_709_251_200, "2024-03-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (u32::MAX, "2106-02-07 06:28:15"),
        ] {
            assert_eq!(moment(Time { seconds, nanoseconds: 0 }), text);
        }
    }

    #[test]
    fn permissions_are_written_as_everywhere() {
        for (kind, mode, text) in [
            (FileType::Regular, 0o644, "-rw-r--r--"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Regular, 0o6755, "-rwsr-sr-x"),
            (FileType::Fifo, 0o7000, "p--S--S--T"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            assert_eq!(permissions(&attributes(kind, mode)), text);
        }
    }

    #[test]
    fn a_listing_shows_where_links_lead_and_what_is_not_known() {
        let unknown = Named { name: b"x\n".to_vec(), fileid: 1, file: None, target: None };
        let text =
            listing(&[named(b"a", None), named(b"l", Some(b"../a")), unknown], Names::Quoted);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(
            lines[1].starts_with("-rw-r--r--      1   1000    100    12  2000-02-29"),
            "{text}"
        );
        assert!(lines[2].ends_with("l -> ../a"), "{text}");
        assert!(lines[3].starts_with('?') && lines[3].ends_with(r"$'x\n'"), "{text}");
        assert!(listing(&[named(b"two words", None)], Names::Lines).contains(" two words\n"));
    }

    #[test]
    fn json_has_every_octet_of_a_name() {
        let json = named(b"\xff\"", None).to_json();
        assert!(json.starts_with("{\"name\":\"\u{fffd}\\\"\",\"name_hex\":\"ff22\",\"fileid\":7,"));
        assert!(
            json.contains(r#""mode":"0644""#) && json.contains(r#""mtime":951827696.000000005"#)
        );
        let json = named(b"l", Some(b"a")).to_json();
        assert!(json.ends_with(r#","target":"a"}"#), "{json}");
    }

    #[test]
    fn room_is_told_in_whole_percents() {
        let room = FsStat {
            attributes: None,
            total_bytes: 1000,
            free_bytes: 333,
            available_bytes: 300,
            total_files: 0,
            free_files: 0,
            available_files: 0,
            invariant_seconds: 0,
        };
        let text = room_text(&room);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["bytes  used  available  used %", " 1000   667        300      69"]
        );
        assert!(lines[2].starts_with("files") && lines[3].ends_with('-'), "{text}");
    }
}
