//! A simulated flash device: channels, dies, a write buffer and garbage collection, from which
//! latencies follow (docs/explanation/flash-model.md).

mod blank;
mod buffer;
mod channel;
mod die;
mod engine;
mod garbage;
mod model;
pub mod sweep;
mod volume;

pub use engine::Counters;
pub use model::{AckModel, BufferModel, Model, Preset, SenseModel, SliceModel};
pub use volume::{SimQueue, SimVolume};
