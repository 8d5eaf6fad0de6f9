//! The figures of single requests.

use contract::{CoarseBucket, IoKind, Meters, NamespaceId, Protocol, Stage, TenantId};

/// The tenant, namespace and protocol that a sampled request is counted for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleLabels {
    pub(crate) tenant: TenantId,
    pub(crate) namespace: NamespaceId,
    /// The protocol of the request's connection; `None` if the connection is gone.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) kind: IoKind,
}

impl SampleLabels {
    /// Adds the nanoseconds that the request spent in each stage of processing to the meters.
    #[inline]
    pub(crate) fn count<const N: usize>(self, meters: &Meters, times: [(Stage, u64); N]) {
        let times = times.map(|(stage, nanos)| (stage, CoarseBucket::of(nanos)));
        let tenant = meters.get(self.tenant).expect("tenants' numbers lie below the maximum");
        times.iter().for_each(|(stage, time)| tenant.sample(self.kind, *stage, *time));
        let namespace = meters.namespace(self.namespace).map(|meter| &meter.work);
        let protocol = self.protocol.map(|protocol| meters.protocol(protocol));
        for work in [namespace, protocol].into_iter().flatten() {
            times.iter().for_each(|(stage, time)| work.stages.sample(self.kind, *stage, *time));
        }
    }
}
