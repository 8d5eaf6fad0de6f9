//! Access to a volume that does not serve: blocking calls.

use contract::Status;

use crate::words::Image;

/// The pages of a volume. Calls may block.
pub trait Pages {
    /// Returns the size of the volume's virtual space in pages.
    fn pages(&self) -> u64;

    /// Reads whole pages from page `at` on. Pages that were never written are zeroes.
    ///
    /// # Errors
    /// The status of the volume.
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Status>;

    /// Writes pages atomically (all of them or none), and makes them durable.
    ///
    /// # Errors
    /// The status of the volume.
    fn commit(&mut self, pages: &[(u64, Image)]) -> Result<(), Status>;

    /// Discards `pages` pages from page `at` on: reads of them give zeroes. A flush makes it durable.
    ///
    /// # Errors
    /// The status of the volume.
    fn discard(&mut self, at: u64, pages: u64) -> Result<(), Status>;

    /// Makes all discards durable.
    ///
    /// # Errors
    /// The status of the volume.
    fn flush(&mut self) -> Result<(), Status>;
}
