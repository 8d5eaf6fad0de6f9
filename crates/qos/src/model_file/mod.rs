//! A device model as a file: `nearflash calibrate` writes it, `nearflash serve --model` reads it,
//! and people can read and change it (docs/reference/device-models.md).
//!
//! Two forms are supported: TOML, which is also written, and the plain table of the original
//! ReFlex. This module deliberately leaves out opening files, and the measurement of a model.

mod file;
mod original;
mod read;
mod write;

pub use file::{FORMAT, ModelFile, ModelFileError, ROWS_MAX, Residual};
pub use write::reads_only_toml;

use alloc::format;

/// The maximum size of a model file in bytes: far more than any table needs.
pub const FILE_BYTES_MAX: usize = 64 << 10;

impl ModelFile {
    /// Parses a device model in either form.
    ///
    /// # Errors
    /// The text has a mistake; the error has its line, its value and the expected form.
    pub fn parse(text: &str) -> Result<ModelFile, ModelFileError> {
        if text.len() > FILE_BYTES_MAX {
            let what = format!("a device model has at most {FILE_BYTES_MAX} bytes");
            return Err(ModelFileError { line: None, what });
        }
        let file =
            if original::is_original(text) { original::parse(text)? } else { read::parse(text)? };
        match file.model() {
            Ok(_) => Ok(file),
            Err(error) => Err(ModelFileError { line: None, what: format!("{error}") }),
        }
    }
}

#[cfg(test)]
mod tests;
