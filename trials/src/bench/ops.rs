//! Measurements of the cost of operating a server: tests of the program (`measuring/ops.rs`) that
//! print figures instead of checking.

use std::time::Duration;

use super::machine::Machine;
use super::settings::BenchOptions;
use xtask::{page, shell};

/// The time limit for all measurements together, on a busy machine.
const LIMIT: Duration = Duration::from_secs(3600);

/// A row of the table: the name of a figure, its value and its limit, as a test printed them.
#[derive(Debug, PartialEq, Eq)]
struct Figure {
    name: String,
    value: String,
    limit: String,
}

/// Runs the measuring tests one after the other and prints a table of their figures.
pub(super) fn run(options: &BenchOptions, machine: &Machine) -> Result<(), String> {
    let chosen: Vec<&str> = options.rows.iter().skip(1).map(String::as_str).collect();
    let mut tests: Vec<String> = chosen.iter().map(|name| format!("ops::{name}")).collect();
    if tests.is_empty() {
        tests.push("ops::".to_owned());
    }
    let mut words =
        vec!["test", "--profile", "dist", "--package", "nearflash-cli", "--test", "all", "--"];
    words.extend(tests.iter().map(String::as_str));
    words.extend(["--ignored", "--nocapture", "--test-threads", "1"]);
    println!("{machine}\n\ncargo {}", words.join(" "));
    let mut command = shell::cargo(&words);
    if let Some(repetitions) = options.repetitions.or(options.quick.then_some(2)) {
        command.env("NEARFLASH_REPETITIONS", repetitions.to_string());
    }
    let ran = shell::capture(&mut command, LIMIT)?;
    let figures: Vec<Figure> = ran.output.lines().filter_map(parse).collect();
    if !ran.ok || figures.is_empty() {
        return Err(ran.output);
    }
    let table = markdown(&figures);
    println!("\n{table}");
    if let Some(path) = &options.output {
        let chosen = chosen.iter().map(|name| format!(" {name}")).collect::<String>();
        let text = format!(
            "# Operating a server\n\nMade by `cargo xtask bench ops{chosen}`; what each figure is stands \
             in `apps/nearflash/tests/all/measuring/ops.rs`. Where there are three numbers, they are the median, the \
             lowest and the highest.\n\n```text\n{machine}\n```\n\n{table}"
        );
        page::write(path, &text)?;
    }
    Ok(())
}

fn parse(line: &str) -> Option<Figure> {
    // The test harness may have begun the line with the name of the test.
    let (_, figure) = line.split_once("figure: ")?;
    let mut parts = figure.split(" | ").map(str::to_owned);
    Some(Figure { name: parts.next()?, value: parts.next()?, limit: parts.next()? })
}

fn markdown(figures: &[Figure]) -> String {
    let row = |Figure { name, value, limit }: &Figure| format!("| {name} | {value} | {limit} |\n");
    let rows: String = figures.iter().map(row).collect();
    format!("| what | measured | at most |\n|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_figures_become_a_table() {
        let said = "running 1 test\ntest moves ... figure: a move | 2.00 ms (1 to 3) | 5 ms\nok\n\
                    figure: another | 7 KiB | bounded\n";
        let figures: Vec<Figure> = said.lines().filter_map(parse).collect();
        assert_eq!(figures.len(), 2);
        let table = markdown(&figures);
        assert!(
            table
                .ends_with("| a move | 2.00 ms (1 to 3) | 5 ms |\n| another | 7 KiB | bounded |\n")
        );
    }
}
