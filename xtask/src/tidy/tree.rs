//! The files of the repository, read into memory for the checks.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;

/// A text file of the repository.
pub(crate) struct File {
    /// The path from the root of the repository, with slashes.
    pub(crate) path: String,
    /// The file's whole text.
    pub(crate) text: String,
    parsed: OnceCell<Result<syn::File, syn::Error>>,
}

/// The files that are under version control or could be.
#[derive(Default)]
pub(crate) struct Tree {
    /// The text files, sorted by path.
    pub(crate) files: Vec<File>,
    /// The paths of all files and folders, of other files than text too.
    pub(crate) paths: BTreeSet<String>,
}

/// The folders at the root that contain no sources, and are not read.
const NOT_SOURCES: [&str; 4] = [".git", "target", "nearflash-data", "artifacts"];

impl Tree {
    /// Reads the files below the folder `root`.
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        tree.enter(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn enter(&mut self, root: &Path, folder: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{folder}: {error}");
        for entry in root.join(folder).read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if NOT_SOURCES.contains(&path.as_str()) {
                continue;
            }
            self.paths.insert(path.clone());
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.enter(root, &path)?;
            } else if kind.is_file()
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                self.files.push(File::new(path, text));
            }
        }
        Ok(())
    }

    /// Returns the Rust source files, tests included.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Returns the Markdown documents.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    /// Returns `true` if a file or folder has this path. A `*` stands for any rest of the path.
    pub(crate) fn has(&self, path: &str) -> bool {
        match path.split_once('*') {
            Some((start, _)) => self.paths.iter().any(|known| known.starts_with(start)),
            None => self.paths.contains(path.trim_end_matches('/')),
        }
    }

    /// Returns a tree of files with these paths and texts, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            for (place, _) in path.match_indices('/') {
                tree.paths.insert(path[..place].to_owned());
            }
            tree.paths.insert((*path).to_owned());
            tree.files.push(File::new((*path).to_owned(), (*text).to_owned()));
        }
        tree
    }
}

impl File {
    fn new(path: String, text: String) -> File {
        File { path, text, parsed: OnceCell::new() }
    }

    /// Returns the file as Rust. The first call parses the file, which is most of the work of the
    /// checks; the others return the kept result.
    pub(crate) fn parsed(&self) -> Result<&syn::File, &syn::Error> {
        self.parsed.get_or_init(|| syn::parse_file(&self.text)).as_ref()
    }

    /// Returns `true` if the whole file is test code, by its path.
    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Returns the name of the crate's folder, or `None` if the file is not in the folder `crates`.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_repository() {
        let tree = Tree::read(&xtask::shell::root()).unwrap();
        assert!(
            tree.has("xtask/src/tidy/tree.rs") && tree.has("crates/") && tree.has("crates/*.rs")
        );
        assert!(!tree.has("target") && !tree.has("crates/none"));
        assert!(tree.sources().any(|file| file.crate_name() == Some("contract")));
    }
}
