//! `nearflash upgrade`: starts a server that takes over from the running one, and reports the
//! result.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use crate::serve;

/// Start a new server that takes over the running server's listeners and connections
#[derive(Debug, clap::Args)]
#[group(id = "upgrade_args")]
pub struct Args {
    #[command(flatten)]
    serve: Box<serve::Args>,
    /// Start the server and end, so that nobody of ours is its parent
    #[arg(long, hide = true)]
    relay: bool,
}

/// Starts the new server, waits until it serves, and leaves it running.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let words: Vec<OsString> = env::args_os().skip(2).filter(|word| word != "--relay").collect();
    if args.serve.is_check() {
        return Err(
            "an upgrade takes over; `nearflash serve --check` only looks at what a server \
                    would be"
                .to_owned(),
        );
    }
    let program = env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    if args.relay {
        // Its parent is the service manager from the start, which then hears of its end.
        let mut server = Command::new(program);
        server.arg("serve").args(words).args((!args.serve.is_upgrade()).then_some("--upgrade"));
        let started = server.stdin(Stdio::null()).spawn();
        return match started {
            Ok(_) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(format!("cannot start the new server: {error}")),
        };
    }
    let mut relay = Command::new(program);
    relay.arg("upgrade").args(words).arg("--relay");
    let started = relay.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut relay = started.map_err(|error| format!("cannot start the new server: {error}"))?;
    let output = relay.stdout.take().expect("it is piped");
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    let _ = relay.wait(); // it has ended, or ends now
    match read {
        Ok(1..) if line.starts_with("ready ") => {
            let _ = std::io::stdout().write_all(line.as_bytes()); // who asked may be gone
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("the new server did not take over (its message is above)".to_owned()),
    }
}
