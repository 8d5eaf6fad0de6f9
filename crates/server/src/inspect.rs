//! `nearflash config` and `nearflash state`: a configuration file and the state of a server, with
//! the server or without it.
//!
//! A state is exported and imported as one [document](Setup). From the files of a server that does
//! not run, the document has all of the state, keys too. A running server exports and imports it
//! over its admin API, without keys.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use control::admin::{
    AdminAddress, Client, ClientError, ImportState, Imported, Secret, ServerState,
};

use crate::admin::{AdminAddresses, default_place};
use crate::config::{effective::Effective, exposure::exposed, schema};
use crate::live::Setup;
use crate::serve::{check_config, preview::Preview, state_file};

/// The comment at the beginning of an exported state document.
const HEAD: &str = "# The state of a nearflash server. `nearflash state import` reads it.\n";

/// Check and show configuration files
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check whether a server would start with a file, and with the live changes since
    Check {
        /// The configuration file.
        #[command(flatten)]
        file: ConfigFileArgs,
        /// The live changes.
        #[command(flatten)]
        kept: StateFileArgs,
        /// Also list what the running server would have to change to get this configuration
        #[arg(long)]
        running: bool,
    },
    /// Print the configuration that a server would have, with live changes and defaults, without
    /// keys and tokens
    Show {
        /// The configuration file.
        #[command(flatten)]
        file: ConfigFileArgs,
        /// The live changes.
        #[command(flatten)]
        kept: StateFileArgs,
    },
    /// Print the JSON Schema of configuration files, for editors
    Schema,
}

/// Export and import the state of a server: tenants, devices, namespaces, subsystems, hosts,
/// listeners and access rules
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Write the state of a server as one document: of the running server, without keys and
    /// tokens, or with --config of its files, with them
    Export {
        /// The server's files.
        #[command(flatten)]
        files: ServerFileArgs,
        /// File to write, which only its owner can read [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Bring a server to the state of a document: the running server, or with --config one that
    /// does not run
    Import {
        /// Document, as exported
        document: PathBuf,
        /// The server's files.
        #[command(flatten)]
        files: ServerFileArgs,
        /// Print what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// The configuration file of a command, with or without the name of the option.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct ConfigFileArgs {
    /// Configuration file
    file: Option<PathBuf>,
    /// Configuration file, as for `serve`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFileArgs {
    fn path(&self) -> &Path {
        self.file.as_deref().or(self.config.as_deref()).expect("one of them is required")
    }
}

/// The option that names the place of live changes.
#[derive(Args, Debug)]
pub struct StateFileArgs {
    /// State file, or none [default: as the configuration says; for /etc/nearflash/nearflash.toml
    /// the service's, else beside the file]
    #[arg(long, value_name = "FILE")]
    state: Option<String>,
}

/// The options that name the files of a server.
#[derive(Args, Debug)]
pub struct ServerFileArgs {
    /// Configuration file of a server that does not run [default: ask the running server]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// State file of that server [default: as for `config check`]
    #[arg(long, value_name = "FILE", requires = "config")]
    state: Option<String>,
}

/// The environment of a command: how it reaches the running server, and how it prints.
pub struct CommandContext<'a> {
    /// Connects to the running server.
    pub client: &'a dyn Fn() -> Result<Client, ClientError>,
    /// Prints a line.
    pub print: &'a dyn Fn(&str),
    /// `true` to print JSON.
    pub json: bool,
}

impl CommandContext<'_> {
    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, String> {
        (self.client)().and_then(|mut client| ask(&mut client)).map_err(|error| error.to_string())
    }
}

impl ConfigCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Fails with all mistakes of the file, or with the reason that the command cannot be run.
    pub fn run(&self, beside: &CommandContext<'_>) -> Result<ExitCode, String> {
        match self {
            ConfigCommand::Check { file, kept, running } => {
                let (file, all) = (file.path(), read(file.path(), kept.state.as_deref())?);
                for warning in
                    exposed(&all.base, file).into_iter().chain(all.changes.dormant(&all.base))
                {
                    (beside.print)(&format!("warning: {warning}"));
                }
                (beside.print)(&format!("state file: {}", all.state_text()));
                (beside.print)(&format!("{}: a server would start", file.display()));
                if *running {
                    let told: ServerState = beside.ask(|client| client.read())?;
                    let own = parse(&told.document, Path::new("the running server"))?;
                    print_changes(
                        beside,
                        "the running server differs",
                        &own.lines_to(&all.setup().hidden())?,
                    );
                    return ask_of_promises(beside, &all.setup());
                }
            }
            ConfigCommand::Show { file, kept } => {
                let all = Preview::read(file.path(), kept.state.as_deref())?;
                (beside.print)(&format!("# state file: {}", all.state_text()));
                let Preview { mut config, state, .. } = all;
                config.state = Some(state.map_or("none".into(), |path| path.display().to_string()));
                (beside.print)(Effective::of(&config)?.to_toml()?.trim_end());
            }
            ConfigCommand::Schema => (beside.print)(&schema::text()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl StateCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Fails with the reason; then nothing was changed.
    pub fn run(&self, beside: &CommandContext<'_>) -> Result<ExitCode, String> {
        match self {
            StateCommand::Export { files, output } => export(beside, files, output.as_deref()),
            StateCommand::Import { document, files, dry_run } => {
                let text = fs::read_to_string(document)
                    .map_err(|error| format!("cannot read {}: {error}", document.display()))?;
                let setup = parse(&text, document)?;
                let done = match &files.config {
                    Some(config) => import(&setup, config, files.state.as_deref(), *dry_run)?,
                    None => {
                        let asked = ImportState { document: Secret(text), dry_run: *dry_run };
                        beside.ask(|client| client.send(&asked))?
                    }
                };
                tell(beside, &done, *dry_run)
            }
        }
    }
}

/// Reads a configuration file and the live changes in the state file `state` (`None`: the one that
/// the configuration names), and checks both.
fn read(file: &Path, state: Option<&str>) -> Result<Preview, String> {
    let all = Preview::read(file, state)?;
    let text = fs::read_to_string(file).unwrap_or_default();
    check_config(&all.base, &all.config).map_err(|found| found.told(Some((file, &text))))?;
    Ok(all)
}

fn parse(text: &str, path: &Path) -> Result<Setup, String> {
    Setup::parse(text).map_err(|mistakes| mistakes.told(Some((path, text))))
}

fn export(
    beside: &CommandContext<'_>,
    files: &ServerFileArgs,
    output: Option<&Path>,
) -> Result<ExitCode, String> {
    let document = match &files.config {
        Some(config) => Preview::read(config, files.state.as_deref())?.setup().to_toml()?,
        None => beside.ask(|client| client.read::<ServerState>())?.document,
    };
    let text = format!("{HEAD}{document}");
    let Some(path) = output else {
        (beside.print)(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    // Keys may be in it.
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    new.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let setup = parse(&text, path)?;
    (beside.print)(&format!("wrote {}", path.display()));
    for host in setup.hosts_without_their_keys() {
        (beside.print)(&format!("without the key of host {host}: --config exports keys"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports a set-up into the state file of a server that does not run. With `dry_run`, only returns
/// what would change.
fn import(
    setup: &Setup,
    file: &Path,
    state: Option<&str>,
    dry_run: bool,
) -> Result<Imported, String> {
    let all = Preview::read(file, state)?;
    let Some(path) = &all.state else {
        return Err(format!(
            "{}: this server keeps no state; name a file with --state",
            file.display()
        ));
    };
    if let Some(socket) = answering(all.base.admin.listen.clone().unwrap_or_else(default_place)) {
        return Err(format!(
            "a server of {} runs (it answers at {}); leave out --config to import into it, or stop it",
            file.display(),
            socket.display()
        ));
    }
    check_owner(path)?;
    let (changes, left) = setup.changes(&all.base, &all.changes)?;
    let wanted = changes.made_to(&all.base);
    check_config(&all.base, &wanted).map_err(|found| found.told(None))?;
    let lines = all.setup().lines_to(&Setup::of(&wanted))?;
    if !dry_run && !lines.is_empty() {
        let (store, _) = state_file::open(Some(path), false)?;
        let mut store = store.expect("it was named");
        let saved = store.save(&changes.of(&all.base));
        saved.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(Imported { changes: lines, left })
}

/// Returns the path of an admin socket among these addresses at which a server answers; `None` if
/// no server does.
fn answering(place: AdminAddresses) -> Option<PathBuf> {
    let AdminAddresses::At(each) = place else { return None };
    let sockets = each.into_iter().filter_map(|address| match address {
        AdminAddress::Unix(path) => Some(path),
        _ => None,
    });
    sockets.into_iter().find(|path| UnixStream::connect(path).is_ok())
}

/// Returns an error if this process has another user than the state file, so that the server could
/// not read what it writes.
fn check_owner(state: &Path) -> Result<(), String> {
    let folder = state.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let found = fs::metadata(state).or_else(|_| fs::metadata(folder));
    let found = found.map_err(|error| format!("cannot look at {}: {error}", folder.display()))?;
    let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
    match owner == own {
        true => Ok(()),
        false => Err(format!(
            "{} is of user {owner}, whose server could not read what user {own} writes; run this as that \
             user (sudo -u '#{owner}' nearflash state import …)",
            state.display()
        )),
    }
}

/// Asks the running server, in a dry run, whether it would admit the tenants of a set-up, and
/// prints the answer. Returns [`ExitCode::FAILURE`] if it would not.
fn ask_of_promises(beside: &CommandContext<'_>, setup: &Setup) -> Result<ExitCode, String> {
    let document = setup.clone().of_tenants().to_toml()?;
    let asked = ImportState { document: Secret(document), dry_run: true };
    match (beside.client)().and_then(|mut client| client.send(&asked)) {
        Ok(Imported { left, .. }) if left.is_empty() => {
            (beside.print)("the running server would take its tenants");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Imported { left, .. }) => {
            for left in left {
                (beside.print)(&format!("the running server would not take: {left}"));
            }
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            (beside.print)(&format!("whether its promises fit was not checked: {error}"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn tell(beside: &CommandContext<'_>, done: &Imported, dry_run: bool) -> Result<ExitCode, String> {
    if beside.json {
        (beside.print)(&serde_json::to_string_pretty(done).expect("it has no maps"));
    } else {
        print_changes(beside, if dry_run { "would change" } else { "changed" }, &done.changes);
        let what = if dry_run { "would not be taken" } else { "not taken" };
        for left in &done.left {
            (beside.print)(&format!("{what}: {left}"));
        }
    }
    Ok(if done.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_changes(beside: &CommandContext<'_>, what: &str, lines: &[String]) {
    (beside.print)(&format!(
        "{what}: {}",
        if lines.is_empty() { "nothing".into() } else { lines.len().to_string() }
    ));
    lines.iter().for_each(|line| (beside.print)(&format!("  {line}")));
}
