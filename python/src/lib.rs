//! The extension module of the Python package: queues whose requests use the memory of Python
//! objects.
//!
//! The package's own Python code (`python/package`) makes volumes of them, for blocking programs
//! and for asyncio. This crate deliberately leaves out everything that Python can say as well.

mod failure;
mod inner;
mod job;
mod local;
mod memory;
mod queue;

/// Queues of requests in flight.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::queue::Queue;

    /// Returns the number of forks between the first process and this one.
    #[pyfunction]
    fn forks() -> u64 {
        crate::local::forks()
    }

    /// Leaves all queues to the parent: for a child that was just forked.
    #[pyfunction]
    fn forked() {
        crate::local::forked();
    }

    /// Closes all queues of this thread: for the end of the program.
    #[pyfunction]
    fn close_all() {
        drop(crate::local::close_all());
    }
}
