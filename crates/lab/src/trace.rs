//! `nearflash trace`: traces a sample of a running server's requests into a file for Perfetto and
//! Chrome.

use std::path::PathBuf;
use std::process::ExitCode;

use server::reach::AdminOptions;

/// Trace single requests through a running server, for ui.perfetto.dev
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    reach: AdminOptions,
    /// Duration of the trace
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,
    /// Share of requests to trace, such as 1/1000
    #[arg(long, value_name = "1/N", default_value = "1/1000", value_parser = one_in)]
    sample: u32,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,
}

fn one_in(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text).parse().ok();
    number.filter(|n| *n > 0).ok_or_else(|| "expected 1/N, such as 1/1000".to_owned())
}

/// Runs the command.
///
/// # Errors
/// Fails with a sentence if an option is out of range, if the server does not answer, and if the
/// file cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    if !(0.1..=600.0).contains(&args.seconds) {
        return Err(format!("--seconds is {}; expected 0.1 to 600", args.seconds));
    }
    let mut client = args.reach.client().map_err(|error| error.to_string())?;
    let all = client.trace(args.seconds, args.sample).map_err(|error| error.to_string())?;
    let count = all["traceEvents"].as_array().map_or(0, |events| {
        events.iter().filter(|event| event["args"]["tenant"].is_string()).count()
    });
    std::fs::write(&args.output, all.to_string())
        .map_err(|error| format!("cannot write {}: {error}", args.output.display()))?;
    outln!("{count} requests are in {}; open it at https://ui.perfetto.dev", args.output.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_one_in_so_many() {
        assert_eq!((one_in("1/1000"), one_in("5")), (Ok(1000), Ok(5)));
        assert!(one_in("1/0").is_err() && one_in("2/3").is_err() && one_in("").is_err());
    }
}
