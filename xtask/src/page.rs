//! Pages of results.

use std::fs;
use std::path::Path;

/// Writes a page, and prints its path.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}
