//! A writer of the archive that a Linux kernel unpacks as its first file system (format `newc`,
//! described in the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`).

/// An archive that is written entry by entry.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    /// Adds a folder. Its parent folder must have been added before.
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, &[], (0, 0));
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, PROGRAM, contents, (0, 0));
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE, &[], (major, minor));
    }

    /// Ends the archive and returns its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8], device: (u32, u32)) {
        self.entries += 1;
        let bytes = u32::try_from(contents.len()).expect("files of an archive are small");
        let path_bytes = path.len() as u32 + 1;
        // inode, mode, user, group, links, time, bytes, its device, its number, path, checksum
        let fields =
            [self.entries, mode, 0, 0, 1, 0, bytes, 0, 0, device.0, device.1, path_bytes, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_heads_of_fixed_size_and_are_padded() {
        let mut archive = Archive::default();
        archive.folder("a");
        archive.file("a/b", b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[..22], b"07070100000001000041ed");
        // The header has 110 bytes, the name `a\0` two.
        assert_eq!(&bytes[112..118], b"070701");
        // The header and the name end at byte 228; the contents are padded to 236.
        assert_eq!(&bytes[228..236], b"hello\0\0\0");
        assert_eq!(&bytes[236..242], b"070701");
        assert_eq!(&bytes[346..356], b"TRAILER!!!");
        assert_eq!(bytes.len() % 4, 0);
    }
}
