//! Files of earlier versions load unchanged: a configuration that uses every table, and the state
//! file with its log that a server left when it was killed amid changes.
//!
//! The files in `tests/golden` are in the form of version 0.1.0 of 2026-11 and are never written
//! anew. The meaning of `server.toml` is beside it, in `configured.toml`, and its meaning with the
//! state file in `effective.toml`; `UPDATE_SNAPSHOTS=1` writes only these two. The files
//! `every-key` have every key that such files can have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nearflash_server::config::effective::Effective;
use nearflash_server::config::{Config, schema};
use nearflash_server::serve::state_file;
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Returns a configuration as `nearflash config show` prints it.
fn shown(config: &Config) -> String {
    Effective::of(config).unwrap().to_toml().unwrap()
}

/// Compares a text with its snapshot. With `UPDATE_SNAPSHOTS`, writes the snapshot first.
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
    check("configured.toml", &shown(&config));
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
    check("effective.toml", &shown(&changes.made_to(&base)));
}

/// Adds the paths of all keys in a document, without positions in lists, to `found`.
fn keys(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, one)| {
            found.insert(format!("{at}.{key}"));
            keys(one, &format!("{at}.{key}"), found);
        }),
        Value::Array(list) => list.iter().for_each(|one| keys(one, at, found)),
        _ => {}
    }
}

/// Adds the paths of all keys that a configuration file can have, by its schema, to `found`.
fn known_keys(root: &Value, schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        known_keys(root, &root["$defs"][name], at, found);
    }
    for (key, one) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(format!("{at}.{key}"));
        known_keys(root, one, &format!("{at}.{key}"), found);
    }
    for key in ["anyOf", "oneOf"] {
        let each = schema[key].as_array().into_iter().flatten();
        each.for_each(|one| known_keys(root, one, at, found));
    }
    if schema["items"].is_object() {
        known_keys(root, &schema["items"], at, found);
    }
}

#[test]
fn every_key_of_an_earlier_configuration_is_read() {
    let (mut all, mut known) = (BTreeSet::new(), BTreeSet::new());
    let files = fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("every-key") && name.ends_with(".toml")
    };
    for path in files.filter(is_one) {
        let (mut said, mut read) = (BTreeSet::new(), BTreeSet::new());
        keys(&toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap(), "", &mut said);
        let config = Config::read(&path).unwrap();
        keys(&toml::from_str(&shown(&config)).unwrap(), "", &mut read);
        assert_eq!(said.difference(&read).collect::<Vec<_>>(), [""; 0]);
        all.extend(said);
    }
    let schema: Value = serde_json::from_str(&schema::text()).unwrap();
    known_keys(&schema, &schema, "", &mut known);
    assert_eq!(all, known, "a new key is for a golden file of its own: earlier versions had none");
}

#[test]
fn every_key_of_an_earlier_state_file_is_read_and_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("server.state");
    fs::copy(golden("every-key.state"), &state).unwrap();
    let (_, changes) = state_file::open(Some(&state), false).unwrap();
    let text = fs::read_to_string(&state).unwrap();
    let before: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    assert_eq!(before.as_object().unwrap().len(), 10, "all kinds of changes");
    assert_eq!(serde_json::to_value(&changes).unwrap(), before);
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
