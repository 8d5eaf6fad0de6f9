//! Sizes and options of a worker's sockets.

use crate::TcpOptions;

/// Sizes and options of a worker's sockets. Every number is a maximum, allocated at start.
#[derive(Debug)]
pub struct SocketsConfig {
    /// Maximum number of simultaneous connections.
    pub connections_max: usize,
    /// Number of receive buffers; a power of two.
    pub receive_buffers: usize,
    /// Bytes of each receive buffer.
    pub receive_buffer_bytes: usize,
    /// Maximum number of frames queued for sending, over all connections.
    pub frames_max: usize,
    /// Options of TCP sockets.
    pub tcp: TcpOptions,
}

impl Default for SocketsConfig {
    fn default() -> Self {
        SocketsConfig {
            connections_max: 16384,
            receive_buffers: 4096,
            receive_buffer_bytes: 8 << 10,
            frames_max: 16384,
            tcp: TcpOptions::default(),
        }
    }
}
