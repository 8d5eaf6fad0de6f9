//! Changes of tenants and namespaces that were not yet sent to the workers.

use std::sync::Arc;

use contract::{Namespace, NamespaceId, TenantId, WorkerMessage};

/// The changes that go to all workers with the controller's next turn.
#[derive(Debug, Default)]
pub(super) struct WorkerUpdates {
    /// Tenants that were unregistered without a notice to the workers yet.
    leaves: Vec<TenantId>,
    /// Messages about changes of namespaces that have not yet been sent to workers.
    places: Vec<WorkerMessage>,
    /// Number of namespace changes since the start, sent or not.
    placed: u64,
}

impl WorkerUpdates {
    /// Announces that a tenant was unregistered.
    pub(super) fn leave(&mut self, tenant: TenantId) {
        self.leaves.push(tenant);
    }

    /// Announces that a namespace was changed or removed.
    pub(super) fn place(
        &mut self,
        number: NamespaceId,
        namespace: Option<Namespace>,
        name: Arc<str>,
    ) {
        self.placed += 1;
        self.places.push(WorkerMessage::Place { change: self.placed, number, namespace, name });
    }

    /// Returns the number of namespace changes since the start, sent or not.
    pub(super) fn placed(&self) -> u64 {
        self.placed
    }

    /// Takes the messages to send to every worker.
    pub(super) fn take(&mut self) -> impl Iterator<Item = WorkerMessage> {
        let leaves = self.leaves.drain(..).map(|tenant| WorkerMessage::Leave { tenant });
        leaves.chain(self.places.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once_and_tenants_first() {
        let mut news = WorkerUpdates::default();
        news.place(NamespaceId(1), None, "ns1".into());
        news.leave(TenantId(2));
        let told: Vec<WorkerMessage> = news.take().collect();
        assert!(matches!(
            told[..],
            [WorkerMessage::Leave { tenant: TenantId(2) }, WorkerMessage::Place { change: 1, .. }]
        ));
        assert_eq!((news.take().count(), news.placed()), (0, 1));
    }
}
