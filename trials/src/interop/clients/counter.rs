//! The plug-in of the emulator that counts the guest's instructions, and the reader of its counts.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interop::apt;

/// The address from which on the kernel's code is counted by piece.
const KERNEL: u64 = 0xffff_ffff_8000_0000;

/// The size in bytes of a piece of the kernel's code, which has a count of its own.
const GRAIN: u64 = 16;

/// The size in bytes that a function is taken to have if no other function follows within it.
const FUNCTION_MAX: u64 = 16 << 10;

/// The plug-in, and the file with the counts of a running guest.
pub(super) struct Counter {
    library: PathBuf,
    counts: PathBuf,
}

/// The counts of the pieces of the kernel's code at one moment: for each range, its first address
/// and the counts from there on.
pub(super) struct Snapshot(Vec<(u64, Vec<u64>)>);

/// The functions of the kernel and its modules: address and name, in ascending order.
pub(super) struct Names(Vec<(u64, String)>);

impl Counter {
    /// Compiles the plug-in in this folder.
    pub(super) fn build(folder: &Path) -> Result<Counter, String> {
        let (source, library) = (folder.join("count.c"), folder.join("count.so"));
        fs::write(&source, include_str!("count.c"))
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        apt::run(&mut command)?;
        Ok(Counter { library, counts: folder.join("counts") })
    }

    /// Returns the argument of the emulator that loads the plug-in.
    pub(super) fn argument(&self) -> String {
        format!("{},counts={}", self.library.display(), self.counts.display())
    }

    /// Returns the instructions that programs and the kernel have executed so far.
    pub(super) fn read(&self) -> Result<[u64; 2], String> {
        let [programs, kernel] = self.words(0, 2)?[..] else { return Err("no counts".to_owned()) };
        Ok([programs, kernel])
    }

    /// Returns the present counts of the pieces of code that these functions fill.
    pub(super) fn snapshot(&self, names: &Names) -> Result<Snapshot, String> {
        let spans = names.spans().into_iter();
        let read = spans.map(|(from, to)| {
            let place = (from - KERNEL) / GRAIN;
            Ok((from, self.words(2 + place, ((to - from) / GRAIN) as usize)?))
        });
        Ok(Snapshot(read.collect::<Result<_, String>>()?))
    }

    fn words(&self, first: u64, count: usize) -> Result<Vec<u64>, String> {
        let mut bytes = vec![0; count * 8];
        let read =
            File::open(&self.counts).and_then(|file| file.read_exact_at(&mut bytes, first * 8));
        read.map_err(|error| format!("{}: {error}", self.counts.display()))?;
        let words = bytes.chunks_exact(8);
        Ok(words.map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect())
    }
}

impl Names {
    /// Parses the text of `/proc/kallsyms` into the functions that it names.
    pub(super) fn parse(text: &str) -> Names {
        let mut names: Vec<(u64, String)> = text.lines().filter_map(function).collect();
        names.sort();
        names.dedup_by_key(|(address, _)| *address);
        Names(names)
    }

    /// Returns the ranges of addresses that the functions fill. A gap of more than [`FUNCTION_MAX`]
    /// bytes ends a range.
    fn spans(&self) -> Vec<(u64, u64)> {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (address, _) in &self.0 {
            let (from, to) = (address & !(GRAIN - 1), (address & !(GRAIN - 1)) + FUNCTION_MAX);
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = to,
                _ => spans.push((from, to)),
            }
        }
        spans
    }

    /// Returns all functions with the instructions that they executed between two moments, the
    /// busiest first.
    pub(super) fn busiest(&self, before: &Snapshot, after: &Snapshot) -> Vec<(String, u64)> {
        let mut sums = vec![0; self.0.len()];
        for ((from, old), (_, new)) in before.0.iter().zip(&after.0) {
            for (number, (old, new)) in old.iter().zip(new).enumerate() {
                // A place belongs to the last function that begins in it or before it.
                let end = from + (number as u64 + 1) * GRAIN;
                let after = self.0.partition_point(|(address, _)| *address < end);
                if new > old && after > 0 {
                    sums[after - 1] += new - old;
                }
            }
        }
        let mut busiest: Vec<(String, u64)> =
            self.0.iter().map(|(_, name)| name.clone()).zip(sums).collect();
        busiest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        busiest
    }
}

/// Parses a line like `ffffffffc0a1 t nvme_tcp_poll [nvme_tcp]` into address and name; `None`
/// unless it names a function of the kernel.
fn function(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = words.next()?;
    let name = words.next().map_or_else(|| name.to_owned(), |module| format!("{name} {module}"));
    (address >= KERNEL && matches!(kind, "t" | "T")).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_place() {
        let text = "ffffffff81000010 T first\nffffffff81000040 t second\t[module]\n\
                    ffffffff81000050 d data\n0000000000000000 A gone\n";
        let names = Names::parse(text);
        assert_eq!(names.0.len(), 2);
        let spans = names.spans();
        assert_eq!(spans, [(KERNEL + 0x100_0010, KERNEL + 0x100_0040 + FUNCTION_MAX)]);
        let from = spans[0].0;
        let before = Snapshot(vec![(from, vec![1, 1, 1, 1, 1])]);
        let after = Snapshot(vec![(from, vec![1, 2, 3, 11, 21])]);
        let busiest = names.busiest(&before, &after);
        assert_eq!(busiest, [("second [module]".to_owned(), 30), ("first".to_owned(), 3)]);
    }
}
