//! Counts of clients' connections with and without TLS, by protocol, for operators who plan to
//! require TLS.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Protocol;

/// The use of TLS at the listeners of one protocol in this process.
#[derive(Debug, Default)]
pub struct TlsUse {
    open: AtomicU64,
    secured: AtomicU64,
    plain: AtomicU64,
}

static USES: [TlsUse; Protocol::ALL.len()] = [const {
    TlsUse { open: AtomicU64::new(0), secured: AtomicU64::new(0), plain: AtomicU64::new(0) }
}; Protocol::ALL.len()];

impl TlsUse {
    /// Returns the counters of a protocol.
    pub fn of(protocol: Protocol) -> &'static TlsUse {
        &USES[protocol as usize]
    }

    /// Counts a connection that came to a listener where TLS is optional. `is_secured` is `true` if
    /// it uses TLS.
    #[cold]
    pub fn chose(&self, is_secured: bool) {
        let counter = if is_secured { &self.secured } else { &self.plain };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection over TLS as open until the value is dropped.
    #[cold]
    pub fn open(&'static self) -> TlsOpen {
        self.open.fetch_add(1, Ordering::Relaxed);
        TlsOpen(self)
    }

    /// Returns the number of connections over TLS that are open now.
    pub fn opened(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the numbers of connections that came to listeners where TLS is optional: first of
    /// those over TLS, then of those without it.
    pub fn chosen(&self) -> [u64; 2] {
        [&self.secured, &self.plain].map(|count| count.load(Ordering::Relaxed))
    }
}

/// An open connection over TLS, as [`TlsUse`] counts it.
#[derive(Debug)]
pub struct TlsOpen(&'static TlsUse);

impl Drop for TlsOpen {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_counted_until_they_end() {
        let of_hosts = TlsUse::of(Protocol::NvmeTcp);
        let both = [of_hosts.open(), of_hosts.open()];
        assert_eq!(of_hosts.opened(), 2);
        drop(both);
        of_hosts.chose(false);
        assert_eq!((of_hosts.opened(), of_hosts.chosen()), (0, [0, 1]));
        assert_eq!(TlsUse::of(Protocol::Nbd).chosen(), [0, 0]);
    }
}
