//! Chores that only find and start a program of the workspace: `sim`, `figures`, `fuzz`.
//!
//! Conventions: the simulated world is the program `nearflash-sim` of the package of the same name,
//! and its figures are made by the program `nearflash-figures`. A fuzz target is a module of the
//! test programs in [`FUZZED`] whose name starts with [`FUZZ`]; each test of it fuzzes for
//! `FUZZ_SECONDS` seconds.

use clap::Args;

use crate::manifest::Manifest;
use xtask::shell;

/// The name of the simulated world's package, which is also its program's.
const SIM_PACKAGE: &str = "nearflash-sim";

/// The test programs that have fuzz targets, as pairs of package and program.
const FUZZED: [(&str, &str); 3] =
    [("nearflash-proto", "all"), ("nearflash-packets", "all"), ("nearflash-contigfs", "all")];

/// The beginning of the names of fuzz targets, by which they are chosen among the tests of a
/// program.
pub(crate) const FUZZ: &str = "fuzz_";

/// The path of the page with the figures, from the root of the repository.
const FIGURES_PAGE: &str = "docs/results/figures.md";

/// Options of `cargo xtask sim`.
#[derive(Args)]
pub(crate) struct SimOptions {
    /// The first seed.
    #[arg(long)]
    seed: u64,
    /// The number of consecutive seeds.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Further arguments for the program.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Options of `cargo xtask figures`.
#[derive(Args)]
pub(crate) struct FiguresOptions {
    /// Names of the figures. Without a name, all are run and their page is written.
    names: Vec<String>,
    /// Shorter runs with fewer points, for a first look.
    #[arg(long)]
    quick: bool,
}

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct FuzzOptions {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Returns the arguments for cargo that run the simulated worlds of `count` seeds from `seed` on;
/// `None` if the workspace has no such program.
pub(crate) fn sim_arguments(manifest: &Manifest, seed: u64, count: u64) -> Option<Vec<String>> {
    let programs = manifest.targets("bin");
    let is_it = |(package, name): &&(&str, &str)| [*package, *name] == [SIM_PACKAGE; 2];
    let (package, name) = programs.iter().find(is_it)?;
    let program = format!("run --release --package {package} --bin {name}");
    let words = format!("{program} -- --seed {seed} --count {count}");
    Some(words.split(' ').map(str::to_owned).collect())
}

/// Returns the test programs with fuzz targets that the workspace has, as pairs of package and
/// program.
pub(crate) fn fuzz_targets(manifest: &Manifest) -> Vec<(&str, &str)> {
    manifest.targets("test").into_iter().filter(|target| FUZZED.contains(target)).collect()
}

/// Replays the simulated worlds of consecutive seeds.
pub(crate) fn sim(options: &SimOptions) -> Result<(), String> {
    let manifest = Manifest::load()?;
    let mut arguments = sim_arguments(&manifest, options.seed, options.count)
        .ok_or(format!("{SIM_PACKAGE} has no program yet"))?;
    arguments.extend(options.rest.iter().cloned());
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    shell::show(&mut shell::cargo(&words))
}

/// Makes the figures in virtual time. If no figure is named and the runs are not shorter, their
/// page is written too.
pub(crate) fn figures(options: &FiguresOptions) -> Result<(), String> {
    let words = "run --release --package nearflash-figures --bin nearflash-figures --";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(options.quick.then_some("--quick"));
    words.extend(options.names.iter().map(String::as_str));
    if options.quick || !options.names.is_empty() {
        return shell::show(&mut shell::cargo(&words));
    }
    let page = shell::root().join(FIGURES_PAGE);
    let page = page.to_str().ok_or("the path of the repository is no text")?;
    words.extend(["--page", page]);
    shell::show(&mut shell::cargo(&words))
}

/// Fuzzes the targets of each test program in turn.
pub(crate) fn fuzz(options: &FuzzOptions) -> Result<(), String> {
    let manifest = Manifest::load()?;
    let targets = fuzz_targets(&manifest);
    if targets.is_empty() {
        return Err("there is no fuzz target (a test module named fuzz_…)".to_owned());
    }
    for (package, program) in targets {
        let words = ["test", "--release", "--package", package, "--test", program];
        let words = [&words[..], &[FUZZ, "--", "--nocapture"]].concat();
        shell::show(shell::cargo(&words).env("FUZZ_SECONDS", options.seconds.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(targets: &str) -> Manifest {
        let text = format!(
            r#"{{"packages": [{{"name": "nearflash-sim", "id": "s", "targets": [{targets}]}}],
                "workspace_members": ["s"]}}"#
        );
        Manifest::parse(&text).unwrap()
    }

    #[test]
    fn the_world_runs_only_when_it_has_a_program() {
        assert!(sim_arguments(&manifest(r#"{"name": "sim", "kind": ["lib"]}"#), 7, 2).is_none());
        let with = manifest(r#"{"name": "nearflash-sim", "kind": ["bin"]}"#);
        let arguments = sim_arguments(&with, 7, 2).unwrap().join(" ");
        assert!(arguments.ends_with("--bin nearflash-sim -- --seed 7 --count 2"), "{arguments}");
    }

    #[test]
    fn fuzz_targets_are_those_of_the_named_packages() {
        let text = r#"{"name": "all", "kind": ["test"]}, {"name": "all", "kind": ["bin"]}"#;
        assert_eq!(fuzz_targets(&manifest(text)), []);
        let text = format!(
            r#"{{"packages": [{{"name": "nearflash-proto", "id": "p", "targets": [{text}]}}],
                "workspace_members": ["p"]}}"#
        );
        assert_eq!(fuzz_targets(&Manifest::parse(&text).unwrap()), [FUZZED[0]]);
    }
}
