//! Making and listing the files of a file system that is not mounted.

use contigfs::{
    Applied, Caller, Errno, FileSystem, Ino, Operation, OperationResult, ROOT, Reply, S_IFDIR,
    S_IFREG, Settings, parts, settle,
};
use contract::Status;
use dataplane::OfflineVolume;
use flash::{Spec, size_text};

use crate::maintain::{now, seed};

/// Permissions of a new file: those of its owner.
const FILE_MODE: u32 = 0o600;

/// Number of free pages of a volume below which no files or directories are created.
const COMMIT_PAGES_MIN: u64 = 256;

/// Permissions of a new folder.
const FOLDER_MODE: u32 = 0o755;

/// Creates a file of the given size, with missing directories above it. No data is written: the
/// file reads as zeroes.
pub(crate) fn allocate(
    spec: &Spec,
    path: &str,
    bytes: u64,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let mut medium = OfflineVolume::open(spec)?;
    let made =
        mount(&mut medium, false).and_then(|fs| Editor::new(fs, &mut medium).make(path, bytes));
    let flushed = medium.flush().map_err(|status| format!("the volume fails ({status})"));
    medium.close();
    made.and_then(|at| flushed.map(|()| at)).map(|at| {
        print(&format!("{path}: {} from {at} on", size_text(bytes)));
    })
}

/// Prints the files of a file system, with their places.
pub(crate) fn list(spec: &Spec, print: &dyn Fn(&str)) -> Result<(), String> {
    let mut medium = OfflineVolume::open(spec)?;
    let fs = mount(&mut medium, true);
    medium.close();
    print_files(&fs?, print);
    Ok(())
}

fn mount(medium: &mut OfflineVolume, read_only: bool) -> Result<FileSystem, String> {
    let commit_pages_max = medium.commit_pages_max();
    let settings = Settings { commit_pages_max, seed: seed(), read_only };
    contigfs::mount(medium, &settings).map_err(|error| error.to_string())
}

/// Prints a line for each regular file: its size, its first byte in the volume, its path. The files
/// of a folder come by their names, and before those of the folders in it.
fn print_files(fs: &FileSystem, print: &dyn Fn(&str)) {
    let mut folders = vec![(ROOT, String::new())];
    while let Some((folder, path)) = folders.pop() {
        let mut below = Vec::new();
        let read = fs.read_directory(folder, 0, |entry| {
            let name = String::from_utf8_lossy(entry.name);
            if !matches!(&*name, "." | "..") {
                below.push((entry.kind, entry.ino, format!("{path}/{name}")));
            }
            true
        });
        read.expect("it is a directory");
        below.sort_by(|one, other| one.2.cmp(&other.2));
        let files = below.iter().filter(|(kind, ..)| *kind == S_IFREG);
        files.for_each(|(_, ino, path)| print(&line(fs, *ino, path)));
        // The last that is pushed is the next one.
        let further = below.into_iter().rev().filter(|(kind, ..)| *kind == S_IFDIR);
        folders.extend(further.map(|(_, ino, path)| (ino, path)));
    }
}

/// Returns the line of a file in a listing. As in `ls`, a question mark replaces each control
/// character.
fn line(fs: &FileSystem, ino: Ino, path: &str) -> String {
    let path: String = path.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match fs.extent_of(ino) {
        Some(extent) => format!("{}\t{}\t{path}", extent.bytes, extent.at),
        None => format!("0\t-\t{path}"),
    }
}

/// A file system that is not mounted, whose operations are carried out one after another.
struct Editor<'a> {
    fs: FileSystem,
    medium: &'a mut OfflineVolume,
}

impl<'a> Editor<'a> {
    fn new(fs: FileSystem, medium: &'a mut OfflineVolume) -> Self {
        Editor { fs, medium }
    }

    /// Makes a file, and returns its first byte in the volume.
    fn make(&mut self, path: &str, bytes: u64) -> Result<u64, String> {
        let mut names = parts(path)
            .ok_or_else(|| format!("{path}: {}", contigfs::NoExtent::Path))?
            .collect::<Vec<_>>();
        let name = names.pop().expect("a path has a part").as_bytes();
        let mut folder = ROOT;
        for part in names {
            folder = self
                .folder(folder, part)
                .map_err(|errno| format!("{path}: {part}: {}", self.advice(errno)))?;
        }
        let made = Operation::Make { parent: folder, name, mode: S_IFREG | FILE_MODE, rdev: 0 };
        let ino = self.entry(made).map_err(|errno| format!("{path}: {}", self.advice(errno)))?;
        if let Err(errno) = self.fill(ino, bytes) {
            let why = match errno {
                Errno::FBIG => too_large(bytes),
                Errno::NOSPC if !self.is_full() => too_large(bytes),
                errno => self.advice(errno),
            };
            // An empty file of this name would be in the way of the next try.
            let _ = self.carry_out(Operation::Unlink { parent: folder, name });
            return Err(format!("{path}: {why}"));
        }
        let extent = self.fs.extent_of(ino).expect("it has bytes now");
        Ok(extent.at)
    }

    /// Gives a file without bytes its size.
    fn fill(&mut self, ino: Ino, bytes: u64) -> Result<(), Errno> {
        self.settle(ino)?;
        self.carry_out(Operation::Allocate { ino, offset: 0, bytes, keep_size: false })?;
        self.settle(ino)
    }

    /// Ends the claim that data may lie beyond the size of a file, as the last of its writers does.
    /// A new file has that claim, with which it could not get a larger place without a copy.
    fn settle(&mut self, ino: Ino) -> Result<(), Errno> {
        self.carry_out(Operation::Open { ino, write: true })?;
        self.carry_out(Operation::Release { ino, write: true })?;
        Ok(())
    }

    /// Returns the inode number of a directory in the directory `parent`. Creates the directory if
    /// it is missing.
    fn folder(&mut self, parent: Ino, name: &str) -> Result<Ino, Errno> {
        let name = name.as_bytes();
        let made = Operation::Make { parent, name, mode: S_IFDIR | FOLDER_MODE, rdev: 0 };
        match self.entry(Operation::Lookup { parent, name }) {
            Err(Errno::NOENT) => self.entry(made),
            found => found,
        }
    }

    /// Carries out an operation that answers with an inode.
    fn entry(&mut self, operation: Operation) -> Result<Ino, Errno> {
        match self.carry_out(operation)? {
            OperationResult::Entry(of) => Ok(of.ino),
            other => panic!("no inode in {other:?}"),
        }
    }

    /// Carries out an operation, with all commits and chores that it needs to be durable.
    fn carry_out(&mut self, operation: Operation) -> Result<OperationResult, Errno> {
        loop {
            let reply = self.apply(operation)?;
            settle(&mut self.fs, self.medium).map_err(|error| match error {
                contigfs::Error::Failed(Status::NoSpace) => Errno::NOSPC,
                _ => Errno::IO,
            })?;
            match reply {
                Reply::Answer(answer, _) => return Ok(answer),
                Reply::Again(_) => {}
                Reply::Move(_) => unreachable!("a file without bytes has nothing to move"),
            }
        }
    }

    /// Returns `true` if the volume has no space for more metadata.
    fn is_full(&self) -> bool {
        self.fs.statistics().pages_free < COMMIT_PAGES_MIN
    }

    /// Returns an error message for a file or directory that could not be created, with advice.
    fn advice(&self, errno: Errno) -> String {
        let why = match errno {
            Errno::EXIST => {
                "there is something of this name already; choose another path, or mount the file system \
                 and change it"
            }
            Errno::NOTDIR => "it is no directory; check the path",
            Errno::NOSPC if self.fs.statistics().inodes_free == 0 => {
                "the file system has as many files and folders as it can; remove some, or make it anew \
                 with more (`nearflash fs create --files`)"
            }
            Errno::NOSPC if self.is_full() => {
                "the volume is full; mount the file system and remove files"
            }
            Errno::NOSPC => {
                "the file system has no space for another file; mount it and remove some, or make a \
                 larger volume (`ftl.virtual`)"
            }
            other => return other.to_string(),
        };
        why.to_owned()
    }

    fn apply(&mut self, operation: Operation) -> Applied {
        if let Some(room) = self.medium.chores() {
            self.fs.set_room(room.pages(), room.room());
        }
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        self.fs.apply(now(), &Caller { uid, gid, groups: &[] }, operation)
    }
}

/// Returns the error message that no free range of virtual space is large enough for the file, with
/// advice.
fn too_large(bytes: u64) -> String {
    format!(
        "the volume's space has no place for {} in a row; choose a smaller size, remove files, or make a \
         larger volume (`ftl.virtual`)",
        size_text(bytes)
    )
}
