//! Files of earlier versions load unchanged: a configuration that uses every table, and the state file
//! with its log that a server left when it was killed amid changes.
//!
//! The files in `tests/golden` were written by version 0.1.0 of 2026-11 and are never written anew. What
//! they mean is beside them, in `effective.toml`; `UPDATE_SNAPSHOTS=1` writes that alone.

use std::fs;
use std::path::{Path, PathBuf};

use nearflash_server::config::Config;
use nearflash_server::serve::state_file;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares a text with its snapshot, or writes that.
fn check(name: &str, text: &str) {
    let path = golden(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == text, "{name} differs; now it is\n{text}");
}

#[test]
fn an_earlier_configuration_means_what_it_meant() {
    let config = Config::read(&golden("server.toml")).unwrap();
    check("configured.toml", &config.to_toml().unwrap());
}

#[test]
fn an_earlier_state_file_and_its_log_mean_what_they_meant() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["server.state", "server.state.log"] {
        fs::copy(golden(name), folder.path().join(name)).unwrap();
    }
    let base = Config::read(&golden("server.toml")).unwrap();
    let state = folder.path().join("server.state");
    let (store, changes) = state_file::open(Some(&state), false).unwrap();
    assert!(store.is_some());
    check("effective.toml", &base.with(&changes).to_toml().unwrap());
}

#[test]
fn a_state_file_of_a_later_version_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("server.state");
    let text = fs::read_to_string(golden("server.state")).unwrap();
    fs::write(&state, text.replacen("nearflash-state 2", "nearflash-state 99", 1)).unwrap();
    let error = state_file::open(Some(&state), false).unwrap_err();
    assert!(error.contains("version 99"), "{error}");
}
