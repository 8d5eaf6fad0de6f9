//! `cargo xtask bench`: measures the server beside its yardsticks, in one run.
//!
//! The server runs on core 0 and the load on core 1, over loopback or a virtual cable. Each row
//! measures both sides of its ratio alternately (A B A B …) with the same client, so that
//! disturbances of a shared machine affect both. It shows medians and ranges. The ceiling of a
//! shape is the best over interfaces, send caps and socket buffers: a short search finds it, and
//! then it is measured alternately like every other side.

mod flash;
mod idle;
mod link;
mod load;
pub(crate) mod machine;
mod ops;
pub(crate) mod packets;
pub(crate) mod process;
mod rows;
mod secrets;
mod servers;
mod settings;
mod table;
pub(crate) mod takeover;

use std::time::Duration;

use link::Link;
use rows::Rows;
pub(crate) use settings::BenchOptions;
use settings::{Client, OtherBench, Settings};
use xtask::{page, shell};

/// Builds the programs, measures the chosen rows and prints the table, or measures the cost of
/// operation for `ops`.
pub(crate) fn run(options: &BenchOptions) -> Result<(), String> {
    match &options.other {
        Some(OtherBench::Packets(options)) => return packets::run(options),
        Some(OtherBench::Flash(options)) => return flash::run(options),
        None => {}
    }
    if options.rows.first().is_some_and(|row| row == "ops") {
        return ops::run(options, &machine::describe());
    }
    let settings = Settings {
        client: options.client,
        stand_in: options.stand_in,
        // One path for the life of the process, so that the measured programs can be copied.
        before: options.before.clone().map(|path| &*Box::leak(path.into_boxed_path())),
        seconds: options.seconds.unwrap_or(if options.quick { 1 } else { 3 }),
        repetitions: options.repetitions.unwrap_or(if options.quick { 2 } else { 5 }).max(1),
        quick: options.quick,
        link: if options.veth { Link::veth()? } else { Link::Loopback },
    };
    build(&settings)?;
    process::raise_descriptor_limit()?;
    let machine = machine::describe();
    println!("{machine}\n");
    let mut rows = Rows::new(&settings);
    let mut done = Vec::new();
    for row in rows::ALL {
        let chosen = options.rows.is_empty() || options.rows.iter().any(|r| row.name.contains(r));
        match rows.obstacle(row) {
            _ if !chosen => {}
            Some(obstacle) => println!("left out: {}: {obstacle}", row.name),
            None => {
                println!("measuring {} …", row.name);
                if row.is_over_tls() {
                    secrets::make()?;
                }
                match rows.measure(row) {
                    Ok(measured) => done.push(measured),
                    // Another build may lack what a row needs.
                    Err(error) if settings.before.is_some() => {
                        println!("left out: {}: {error}", row.name);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    if done.is_empty() {
        let names: Vec<&str> = rows::ALL.iter().map(|row| row.name).collect();
        return Err(format!("no such row; there are: {}", names.join(", ")));
    }
    let text = table::markdown(&done);
    println!("\n{text}");
    if let Some(path) = &options.output {
        let document = table::document(&machine, &text, &rows.commands());
        page::write(path, &document)?;
    }
    Ok(())
}

fn build(settings: &Settings) -> Result<(), String> {
    let mut lists = Vec::new();
    if settings.before.is_none() || settings.client == Client::Hammer {
        lists.push(vec!["build", "--profile", "dist", "--package", "nearflash-io", "--examples"]);
    }
    if settings.stand_in.is_none() || settings.client == Client::Nearflash {
        lists.push(vec!["build", "--profile", "dist", "--package", "nearflash-cli"]);
    }
    for words in lists {
        println!("cargo {}", words.join(" "));
        let ran = shell::capture(&mut shell::cargo(&words), Duration::from_secs(1200))?;
        if !ran.ok {
            return Err(ran.output);
        }
    }
    Ok(())
}
