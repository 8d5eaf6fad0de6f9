//! `nearflash reproduce`: the figures and tables of the ReFlex paper, measured here and compared
//! with the paper.
//!
//! Figures that need more cores, tenants or flash than a small machine has run in virtual time
//! (`figures`), and a point of some is confirmed in real time. Figures about the machine's
//! network and processors run in real time. Deliberately left out: the measurements themselves.

mod batches;
mod breakdown;
mod confirm;
mod fig4;
mod fig6c;
mod files;
mod html;
mod iscsi;
mod machine;
mod paper;
mod real;
mod table2;
mod tenants;

use std::path::PathBuf;
use std::process::ExitCode;

use figures::{self, Figure, Options};
use machine::Machine;
use real::RealTimeSettings;

use crate::child;
use crate::report::Style;

/// Reproduce the figures and tables of the ReFlex paper
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Figures to make: fig1, fig3, table2, fig4, fig5, fig6a, fig6b, fig6c, another one that the
    /// documentation lists, or all
    #[arg(required = true, value_parser = parse_name)]
    names: Vec<&'static str>,
    /// Folder for tables (CSV), plots (SVG) and the report (HTML)
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Make shorter runs with fewer points, for an impression
    #[arg(long)]
    quick: bool,
    /// Seed of random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Skip everything that runs in real time
    #[arg(long)]
    virtual_only: bool,
}

/// The name that selects all figures.
const ALL: &str = "all";

type Measure = fn(&RealTimeSettings) -> Result<Figure, String>;

/// The figures that are measured in real time only, in the paper's order.
const REAL: [(&str, Measure); 5] = [
    ("table2", table2::measure),
    ("fig4", fig4::measure),
    ("fig6c", fig6c::measure),
    ("tyche-live", batches::measure),
    ("tyche-breakdown", breakdown::measure),
];

fn parse_name(text: &str) -> Result<&'static str, String> {
    let known = || names().chain([ALL]);
    known().find(|name| *name == text).ok_or_else(|| {
        format!("there is no {text}; there are: {}", known().collect::<Vec<_>>().join(", "))
    })
}

/// Returns the names of all figures: those of the ReFlex paper in its order, then the others.
fn names() -> impl Iterator<Item = &'static str> {
    let paper = ["fig1", "fig3", "table2", "fig4", "fig5", "fig6a", "fig6b", "fig6c"];
    let others = figures::ALL.iter().map(|(name, _)| *name);
    let real = REAL.iter().map(|(name, _)| *name);
    paper.into_iter().chain(others.chain(real).filter(move |name| !paper.contains(name)))
}

/// Makes the requested figures and writes their files and the report. Fails if a target was missed.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    child::end_with_us()?;
    let machine = Machine::describe();
    outln!("{machine}\n");
    let wanted: Vec<&str> =
        names().filter(|name| args.names.iter().any(|n| n == name || *n == ALL)).collect();
    std::fs::create_dir_all(&args.output)
        .map_err(|e| format!("cannot make {}: {e}", args.output.display()))?;
    let bed = RealTimeSettings::new(args.quick, args.seed);
    let mut done = Vec::new();
    for name in wanted {
        let Some(figure) = make(name, args, &bed)? else { continue };
        outln!("{}", terminal(&figure));
        files::write(&args.output, &figure)?;
        done.push(figure);
    }
    let report = html::report(&done, &machine, args.quick);
    let path = args.output.join("report.html");
    std::fs::write(&path, report).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    outln!("written to {}", path.display());
    let met = done.iter().all(Figure::is_met);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes one figure. Returns `None` if `--virtual-only` excludes it, since it is measured in real
/// time only.
fn make(name: &str, args: &Args, bed: &RealTimeSettings) -> Result<Option<Figure>, String> {
    let options = Options { seed: args.seed, quick: args.quick };
    if let Some((_, make)) = figures::ALL.iter().find(|(other, _)| *other == name) {
        outln!("{name}: in virtual time …");
        let mut figure = make(&options);
        if !args.virtual_only {
            confirm::confirm(&mut figure, bed)?;
        }
        paper::overlay(&mut figure);
        return Ok(Some(figure));
    }
    if args.virtual_only {
        return Ok(None);
    }
    let (_, measure) = REAL.iter().find(|(other, _)| *other == name).expect("every name is known");
    outln!("{name}: in real time …");
    let mut figure = measure(bed)?;
    paper::overlay(&mut figure);
    Ok(Some(figure))
}

/// Returns a figure as text for a terminal.
fn terminal(figure: &Figure) -> String {
    let style = Style::of_terminal();
    let text = figure.to_markdown();
    let lines = text.lines().map(|line| match line {
        line if line.starts_with("## ") => style.bold(line.trim_start_matches("## ")),
        line if line.contains("| MISSED") => style.red(line),
        line => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_one_maker() {
        let all: Vec<&str> = names().collect();
        for name in &all {
            let makers = figures::ALL.iter().filter(|(other, _)| other == name).count()
                + REAL.iter().filter(|(other, _)| other == name).count();
            assert_eq!(makers, 1, "{name}");
            assert_eq!(parse_name(name), Ok(*name));
        }
        assert_eq!(parse_name("all"), Ok("all"));
        assert!(parse_name("fig2").unwrap_err().contains("fig6c"));
    }
}
