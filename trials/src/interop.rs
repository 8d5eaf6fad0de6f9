//! `cargo xtask interop`: end-to-end tests under hard conditions, such as power cuts, killed
//! servers and old kernels.
//!
//! Some tests boot stock kernels in an emulator ([`guest`]), which works without hardware
//! virtualisation. As root, they install or unpack the Debian packages and kernels that they need,
//! and say so. A test that cannot run is skipped with the reason.

mod api;
mod apt;
mod archive;
pub(crate) mod built;
pub(crate) mod chance;
mod clients;
mod commands;
mod context;
mod disk;
mod disk_errors;
mod disk_identity;
pub(crate) mod fio;
mod guest;
mod handover;
mod kernel;
mod kill_server;
mod ledger;
mod list;
mod load;
mod mirror;
mod nbd;
mod nvme;
mod old_kernel;
pub(crate) mod port;
mod power_cut;
pub(crate) mod reflex;
mod standby;
mod table;
mod ublk;
mod wall_clock;

use std::cell::OnceCell;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use built::{build, target_folder};
use clap::Args;
use context::{Context, Verdict};
use kernel::{Kernel, Qemu, Series};
use list::{List, TESTS, Test};
use standby::{Standby, empty};
use table::Table;

use xtask::needs::{self, Need};

/// Options of `cargo xtask interop`.
#[derive(Args)]
pub(crate) struct InteropOptions {
    /// Run only the tests whose names contain one of these
    test: Vec<String>,
    /// Use this kernel in all guests [default: what each test is about; the short form: 6.12]
    #[arg(long, value_enum)]
    kernel: Option<Series>,
    /// Test this program [default: it is built]
    #[arg(long, value_name = "PATH")]
    nearflash: Option<PathBuf>,
    /// Keep the files of tests that passed, too
    #[arg(long)]
    keep: bool,
    /// Run the short form, as `cargo xtask ci` does
    #[arg(long)]
    quick: bool,
    /// Take the names as whole names
    #[arg(long)]
    exact: bool,
    /// Print the tests and run none: list, name and kernel of each
    #[arg(long)]
    names: bool,
    /// Seed the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill so often in tests that kill [default: a few times]
    #[arg(long, value_name = "TIMES")]
    kills: Option<u32>,
}

/// The programs that guests need, which they find in the host's root file system, and their Debian
/// packages.
const GUEST_NEEDS: &[Need] = &[
    Need { program: "qemu-system-x86_64", package: "qemu-system-x86" },
    Need { program: "busybox", package: "busybox-static" },
    Need { program: "modprobe", package: "kmod" },
    Need { program: "xz", package: "xz-utils" },
    Need { program: "setpriv", package: "util-linux" },
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
    Need { program: "dmsetup", package: "dmsetup" },
    Need { program: "curl", package: "curl" },
];

/// The results of all tests of a run.
#[derive(Default)]
struct Tally {
    passed: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
    table: Table,
}

/// Runs the selected tests. The last line printed is `N passed, M failed, K skipped`.
pub(crate) fn run(options: &InteropOptions) -> Result<(), String> {
    if options.names {
        print_names();
        return Ok(());
    }
    let _claim = claim(&interop_folder())?;
    let tally = run_tests(options)?;
    let (failed, skipped) = (tally.failures.len(), tally.skipped.len());
    println!("\n{}", tally.table);
    for reason in &tally.skipped {
        println!("skipped: {reason}");
    }
    for failure in &tally.failures {
        println!("FAILED: {failure}");
    }
    println!("{} passed, {failed} failed, {skipped} skipped", tally.passed);
    match (failed, tally.passed + skipped as u64) {
        (0, 1..) => Ok(()),
        (0, _) => Err("no test has such a name".to_owned()),
        _ => Err("interop failed".to_owned()),
    }
}

/// Prints a line for each test and kernel. Further kernels of a test in the short list belong to
/// full runs.
fn print_names() {
    for test in TESTS {
        for (number, series) in test.kernels.iter().enumerate() {
            let list = if number == 0 { test.list } else { List::Full };
            println!("{} {} {}", list.name(), test.name, series.name());
        }
        if test.kernels.is_empty() {
            println!("{} {}", test.list.name(), test.name);
        }
    }
}

/// Runs the tests kernel by kernel, so that the tests of one kernel can share a guest. Returns
/// their results.
fn run_tests(options: &InteropOptions) -> Result<Tally, String> {
    let nearflash = match &options.nearflash {
        Some(path) => path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?,
        None => build()?,
    };
    let mut tally = Tally::default();
    let named = |test: &&Test| {
        let whole = options.exact || test.list == List::Hand;
        let is_named = |word: &String| match whole {
            true => test.name == word,
            false => test.name.contains(&**word),
        };
        options.test.is_empty() && test.list != List::Hand || options.test.iter().any(is_named)
    };
    let chosen: Vec<&Test> = TESTS
        .iter()
        .filter(named)
        .filter(|test| test.list == List::Short || !options.quick)
        .collect();
    for series in [None, Some(Series::V6_12), Some(Series::V6_1), Some(Series::V7)] {
        let standby = Rc::new(Standby::new(&interop_folder(), series, options.keep));
        for test in
            chosen.iter().filter(|test| test.runs(options.kernel, options.quick).contains(&series))
        {
            let label = label(test.name, series);
            println!("--- {label}");
            let context = Context {
                folder: interop_folder().join(label.replace([' ', '(', ')'], "")),
                nearflash: nearflash.clone(),
                quick: options.quick,
                seed: options.seed,
                kills: options.kills,
                tools: OnceCell::new(),
                standby: Rc::clone(&standby),
            };
            let started = Instant::now();
            let outcome = run_test(test, series, options.keep, &context);
            tally.add(test.name, series, started.elapsed(), &outcome, &context)?;
        }
    }
    Ok(tally)
}

/// Returns the name of a run: the test's name, followed by the kernel if the test runs in a guest.
fn label(name: &str, series: Option<Series>) -> String {
    match series {
        Some(series) => format!("{name} ({})", series.name()),
        None => name.to_owned(),
    }
}

impl Tally {
    fn add(
        &mut self,
        name: &'static str,
        series: Option<Series>,
        time: Duration,
        outcome: &Result<Verdict, String>,
        context: &Context,
    ) -> Result<(), String> {
        let seconds = time.as_secs_f64();
        let label = label(name, series);
        match outcome {
            Ok(Verdict::Passed(summary)) => {
                println!("    passed in {seconds:.1} s: {summary}");
                self.passed += 1;
                self.table.set(name, series, format!("{seconds:.0} s"));
            }
            Ok(Verdict::Skipped(reason)) => {
                println!("skipped: {label}: {}", reason.replace('\n', " "));
                self.skipped.push(format!("{label}: {reason}"));
                self.table.set(name, series, "skipped".to_owned());
            }
            Err(error) => {
                println!("    FAILED in {seconds:.1} s: {error}");
                let folder = context.folder.display();
                self.failures.push(format!("{label}: {error}\nkept in {folder}"));
                self.table.set(name, series, "FAILED".to_owned());
                fs::write(context.folder.join("failure"), error).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

fn run_test(
    test: &Test,
    series: Option<Series>,
    keep: bool,
    context: &Context,
) -> Result<Verdict, String> {
    empty(&context.folder)?;
    if let Some(series) = series
        && let Err(reason) = provide(series, context)
    {
        return Ok(Verdict::Skipped(reason));
    }
    let mut outcome = (test.run)(context);
    let trouble = guest::trouble(&context.folder);
    if outcome.is_ok() && !trouble.is_empty() {
        outcome = Err(format!("a guest's kernel complained:\n{}", trouble.join("\n")));
    }
    if outcome.is_err() {
        context.standby.leave_output(&context.folder)?;
    } else if !keep {
        fs::remove_dir_all(&context.folder).map_err(|error| error.to_string())?;
    }
    outcome
}

/// Provides the emulator and the kernel for the context's guests. The error is the reason why
/// guests cannot run.
fn provide(series: Series, context: &Context) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the guests are x86-64 and so must the programs in them be".to_owned());
    }
    needs::provide(GUEST_NEEDS)?;
    let cache = target_folder().join("interop-cache");
    fs::create_dir_all(&cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    let tools = (Qemu::prepare(&cache)?, Kernel::prepare(series, &cache)?);
    println!("    kernel {}, {}", tools.1.release, tools.0.program.display());
    // Each test has a context of its own, so the cell was empty.
    context.tools.set(tools).map_err(|_| "the guest was prepared twice".to_owned())
}

/// Returns the folder that the tests write their files to.
fn interop_folder() -> PathBuf {
    target_folder().join("interop")
}

/// Claims the folder of the tests' files until the returned file is closed. Two runs in one folder
/// would remove each other's files.
fn claim(folder: &Path) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let file = File::create(folder.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!(
            "{}: another run of interop uses this folder: wait for its end, or set CARGO_TARGET_DIR \
             to another one",
            folder.display()
        )),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::claim;

    #[test]
    fn a_folder_is_claimed_by_a_single_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let claimed = claim(folder.path()).expect("nobody else uses it");
        let refused = claim(folder.path()).expect_err("the first run uses it");
        assert!(refused.contains("another run"), "{refused}");
        drop(claimed);
        claim(folder.path()).expect("free again");
    }
}
