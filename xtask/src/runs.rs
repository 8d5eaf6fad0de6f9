//! Chores that only find and start a program of the workspace: `sim`, `figures`, `fuzz`.
//!
//! Conventions: the simulated world is the program `nearflash-sim` of the package of that name, its
//! figures are the program `nearflash-figures`; a fuzz target is a
//! module of the tests of [`FUZZED`] whose name starts with [`FUZZ`]; each test of it fuzzes for
//! `FUZZ_SECONDS` seconds.

use clap::Args;

use crate::manifest::Manifest;
use xtask::shell;

/// The package and the program that is the simulated world.
const SIM_PACKAGE: &str = "nearflash-sim";

/// The packages and the test programs that have fuzz targets.
const FUZZED: [(&str, &str); 3] =
    [("nearflash-proto", "all"), ("nearflash-packets", "all"), ("nearflash-contigfs", "all")];

/// The word that chooses the fuzz targets among the tests of their program.
pub(crate) const FUZZ: &str = "fuzz_";

/// The page with the figures.
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

/// The arguments for cargo that run the simulated world, or `None` while there is no such program.
pub(crate) fn sim_arguments(manifest: &Manifest, seed: u64, count: u64) -> Option<Vec<String>> {
    let programs = manifest.targets("bin");
    let is_it = |(package, name): &&(&str, &str)| [*package, *name] == [SIM_PACKAGE; 2];
    let (package, name) = programs.iter().find(is_it)?;
    let program = format!("run --release --package {package} --bin {name}");
    let words = format!("{program} -- --seed {seed} --count {count}");
    Some(words.split(' ').map(str::to_owned).collect())
}

/// Returns the test programs with fuzz targets, as pairs of package and integration test.
pub(crate) fn fuzz_targets(manifest: &Manifest) -> Vec<(&str, &str)> {
    manifest.targets("test").into_iter().filter(|target| FUZZED.contains(target)).collect()
}

/// Replays seeds of the simulated world.
pub(crate) fn sim(options: &SimOptions) -> Result<(), String> {
    let manifest = Manifest::load()?;
    let mut arguments = sim_arguments(&manifest, options.seed, options.count)
        .ok_or(format!("{SIM_PACKAGE} has no program yet"))?;
    arguments.extend(options.rest.iter().cloned());
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    shell::show(&mut shell::cargo(&words))
}

/// Makes the figures in virtual time. All of them, at full length, make their page anew.
pub(crate) fn figures(options: &FiguresOptions) -> Result<(), String> {
    let words = "run --release --package nearflash-lab --bin nearflash-figures --";
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

/// Fuzzes each target in turn.
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
