//! Tests of the admin API against its own OpenAPI document, by a generator of requests.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::port::free_port;
use super::{Context, Verdict};
use crate::bench::process::{Server, show};
use xtask::shell;

/// The generator of requests and its version, as pip names it.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// The checks of the generator that are left out. Rules of names, sizes and numbers are more than a
/// schema says, so the server refuses some requests that fit the schema. A tenant may be named
/// `check`, so the path `/v1/tenants/check` has more methods than its entry in the document.
const NOT_CHECKED: &str = "positive_data_acceptance,allow_header_conformance";

/// The time limits for installing the generator and for running it.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const RUN_LIMIT: Duration = Duration::from_secs(400);

/// Sends requests that fit the OpenAPI document and requests that do not, and checks that all
/// answers fit it.
pub(super) fn schema(context: &Context) -> Result<Verdict, String> {
    let tools = context.folder.join("tools");
    if let Err(why) = install(&tools) {
        return Ok(Verdict::Skipped(why));
    }
    let (port, api) = (free_port()?, format!("http://127.0.0.1:{}", free_port()?));
    let mut command = Command::new(&context.nearflash);
    command.current_dir(&context.folder);
    command.args(["serve", "--device", "sim:a?size=64MiB", "--state", "./state"]);
    command.args(["--listen", &format!("nvme-tcp://127.0.0.1:{port}"), "--admin", &api]);
    let _server = Server::start(&mut command)?;
    let examples = if context.quick { "2" } else { "20" };
    let mut generator = Command::new(tools.join("bin/schemathesis"));
    generator.current_dir(&context.folder);
    generator.args(["run", &format!("{api}/openapi.json"), "--checks", "all"]);
    generator.args(["--exclude-checks", NOT_CHECKED, "--max-examples", examples]);
    // A server that drains ends. One seed always, so that a failure is that of a change.
    generator.args(["--exclude-path", "/v1/drain", "--seed", "1", "--warnings", "off"]);
    let ran = shell::capture(&mut generator, RUN_LIMIT)?;
    if !ran.ok {
        return Err(format!("{}:\n{}", show(&generator), ran.output));
    }
    let generated = |line: &&str| line.contains("generated");
    let line = ran.output.lines().find(generated).ok_or("the generator says no number of cases")?;
    Ok(Verdict::Passed(line.trim().to_owned()))
}

/// Installs the generator into a new Python environment in `folder`.
fn install(folder: &Path) -> Result<(), String> {
    let cannot = |why: String| format!("{SCHEMATHESIS} cannot be installed: {why}");
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(folder);
    let mut fill = Command::new(folder.join("bin/pip"));
    fill.args(["install", "--quiet", SCHEMATHESIS]);
    for command in [&mut make, &mut fill] {
        let ran = shell::capture(command, INSTALL_LIMIT).map_err(cannot)?;
        if !ran.ok {
            return Err(cannot(ran.output.lines().last().unwrap_or_default().to_owned()));
        }
    }
    Ok(())
}
