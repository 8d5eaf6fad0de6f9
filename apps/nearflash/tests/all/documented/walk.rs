//! Tests that the walk-throughs in the documents work: their commands run, and print what the
//! documents show.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{KilledOnDrop, PATIENCE, free_port, wait_until};

/// A fenced block of a document: its language, its text and its mark. The mark stands in a comment
/// on the line before: `server` for a command that serves, or the name of a file to write.
struct Block {
    language: String,
    text: String,
    mark: Option<String>,
}

fn blocks(document: &str) -> Vec<Block> {
    let (mut found, mut before, mut lines) = (Vec::new(), "", document.lines());
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let mark = before.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(Block {
                language: language.to_owned(),
                text: inside.join("\n"),
                mark: mark.map(str::to_owned),
            });
        }
        before = line;
    }
    found
}

/// Returns a shell that will run `script` in `folder`, with the program under test in its path.
fn shell(folder: &Path, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_nearflash"));
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
    command.env("NEARFLASH_ADMIN", "./admin.sock");
    command
}

#[test]
fn the_walk_with_tenants_goes_as_the_document_says() {
    let (ran, compared) = walk("docs/tutorials/tenants.md", |text| text);
    assert!(ran > 8 && compared > 6, "{ran} commands, {compared} compared");
}

#[test]
fn the_walk_to_a_mounted_volume_goes_as_far_as_it_can_without_root() {
    let port = free_port().port();
    let (ran, compared) =
        walk("docs/tutorials/linux-volume.md", |text| text.replace("4420", &port.to_string()));
    assert_eq!((ran, compared), (3, 2));
}

/// Carries out the blocks of the document at `path`, after `edit` has changed its text. Returns how
/// many commands ran, and how many outputs were compared with the document.
fn walk(path: &str, edit: impl Fn(String) -> String) -> (u32, u32) {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let blocks = blocks(&edit(std::fs::read_to_string(document).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let mut serving = None;
    let (mut ran, mut compared) = (0, 0);
    let mut printed = String::new();
    for block in &blocks {
        match block.language.as_str() {
            "toml" | "json" => {
                let file = block.mark.as_ref().expect("a file has a name");
                std::fs::write(folder.path().join(file), &block.text).unwrap();
            }
            // Only root may, and not on every machine.
            "console" => {}
            "sh" if block.mark.as_deref() == Some("server") => {
                let server = shell(folder.path(), &format!("exec {}", block.text));
                serving = Some(KilledOnDrop({ server }.spawn().unwrap()));
                let admin = folder.path().join("admin.sock");
                wait_until("the server", PATIENCE, || admin.exists());
            }
            "sh" if block.text.starts_with("curl") && !has_curl() => {}
            "sh" => {
                let output = shell(folder.path(), &block.text).output().unwrap();
                printed = String::from_utf8(output.stdout).unwrap();
                printed.push_str(std::str::from_utf8(&output.stderr).unwrap());
                assert!(output.status.success(), "{}\n{printed}", block.text);
                ran += 1;
            }
            "text" => {
                assert_eq!(printed.trim_end(), block.text);
                compared += 1;
            }
            other => panic!("a block of {other:?}"),
        }
    }
    assert!(serving.is_some(), "{path} starts a server");
    (ran, compared)
}

fn has_curl() -> bool {
    Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok()
}
