//! The functions of the API's operations on tenants.

use std::slice;

use contract::Promise;

use crate::admin::input::Body;
use crate::admin::model::{
    Admitted, ChangeTenant, Check, NewTenant, SetNamed, TenantPatch, TenantStatus, Tenants, Verdict,
};
use crate::admin::operation::{Api, Call};
use crate::admin::problem::{Code, Problem};
use crate::admin::watch::Stages;
use crate::info::{self, Refusal};
use crate::registry::TenantChange;

pub(super) fn list(call: &Call, (): ()) -> Result<Tenants, Problem> {
    let (tenants, starvation) = {
        let registry = call.api.tenants.registry();
        (registry.list(), registry.activity().starvation())
    };
    let tenants = tenants.into_iter().map(TenantStatus::from).collect();
    Ok(Tenants { tenants, overcommitted: starvation.map(|found| found.to_string()) })
}

pub(super) fn get(call: &Call, (): ()) -> Result<TenantStatus, Problem> {
    let tenants = &call.api.tenants;
    let found = tenants.get(&call.name).map(TenantStatus::from);
    found.ok_or_else(|| tenants.registry().no_tenant(&call.name).into())
}

pub(super) fn add(call: &Call, Body(wanted): Body<NewTenant>) -> Result<Admitted, Problem> {
    let admission = make(&call.api, &meant(ChangeTenant::Add(wanted.clone()))?)?;
    tracing::info!(tenant = wanted.name, tokens = admission.tokens_needed, "tenant added");
    call.note.after(&wanted);
    Ok(admission.into())
}

pub(super) fn set(call: &Call, Body(to): Body<TenantPatch>) -> Result<Admitted, Problem> {
    let (name, TenantPatch { slo, share, note, device }) = (call.name.clone(), to);
    let change = meant(ChangeTenant::Set(SetNamed { name, slo, share, note, device }))?;
    let before = promise_of(call);
    let admission = make(&call.api, &change)?;
    call.note.before(&before);
    call.note.after(&promise_of(call));
    tracing::info!(tenant = call.name, tokens = admission.tokens_needed, "tenant changed");
    Ok(admission.into())
}

pub(super) fn remove(call: &Call, (): ()) -> Result<(), Problem> {
    call.note.before(&promise_of(call));
    match call.api.parts.inventory() {
        None => call.api.tenants.unregister(&call.name)?,
        Some(inventory) => inventory.remove_tenant(&call.name)?,
    }
    tracing::info!(tenant = call.name, "tenant removed");
    Ok(())
}

pub(super) fn check(call: &Call, Body(question): Body<Check>) -> Result<Verdict, Problem> {
    let tenants = &call.api.tenants;
    let is_new = question.tenant.is_none();
    let slo = question.slo.to_contract().map_err(|why| Problem::new(Code::Invalid, why))?;
    let verdict = match (&question.tenant, question.device.as_deref()) {
        (None, device) => tenants.check(slo, device)?,
        (Some(tenant), device) => tenants.check_change(tenant, slo, device)?,
    };
    Ok(match verdict {
        info::Verdict::Admitted { tokens_needed, tokens_left, tokens_headroom, fits } => Verdict {
            admitted: true,
            tokens_needed: Some(tokens_needed),
            tokens_left: Some(tokens_left),
            tokens_headroom,
            fits: is_new.then_some(fits),
            refusal: None,
        },
        info::Verdict::Refused { refusal, ways } => {
            let tokens_headroom = match refusal {
                Refusal::TooMuch { tokens_headroom, .. } => tokens_headroom,
                _ => 0,
            };
            let problem = Problem::refused(refusal, ways);
            if problem.code == Code::Invalid {
                return Err(problem);
            }
            let shortage = problem.shortage.as_ref();
            Verdict {
                admitted: false,
                tokens_needed: shortage.map(|s| s.tokens_needed),
                tokens_left: shortage.map(|s| s.tokens_available),
                tokens_headroom,
                fits: is_new.then_some(0),
                refusal: Some(problem),
            }
        }
    })
}

pub(super) fn stages(call: &Call, (): ()) -> Result<Stages, Problem> {
    let registry = call.api.tenants.registry();
    let tenant = registry.find(&call.name).ok_or_else(|| registry.no_tenant(&call.name))?;
    let totals = &registry.tenants.entry(tenant).window.totals;
    let [scheduler, device, reply] = &totals.samples[0];
    let edges = (0..).map_while(contract::coarse_edge).map(|nanos| nanos as f64 / 1e3);
    Ok(Stages {
        edges_us: edges.collect(),
        latency: totals.latency.to_vec(),
        scheduler: scheduler.to_vec(),
        device: device.to_vec(),
        reply: reply.to_vec(),
    })
}

/// Adds or changes a tenant and stores the change if the server stores changes, or does neither.
fn make(api: &Api, wanted: &TenantChange) -> Result<info::Admission, Problem> {
    let done = match api.parts.inventory() {
        Some(inventory) => inventory.change_tenant(wanted),
        None => match api.tenants.apply(slice::from_ref(wanted)) {
            Ok(()) => api.tenants.registry().admission_of(wanted.name()).map_err(Problem::from),
            Err((_, refusal)) => Err(refusal.into()),
        },
    };
    done.map_err(|problem| with_ways(api, wanted, problem))
}

/// Adds to the problem of a refused SLO the remedies that a check finds. Other problems are
/// returned unchanged.
fn with_ways(api: &Api, wanted: &TenantChange, problem: Problem) -> Problem {
    if !matches!(problem.code, Code::TooMuch | Code::TooTight) {
        return problem;
    }
    let checked = match wanted {
        TenantChange::Add(tenant) => match tenant.promise.slo() {
            Some(slo) => api.tenants.check(slo, tenant.device.as_deref()),
            None => return problem,
        },
        TenantChange::Set { name, to: Promise::LatencyCritical(slo), device, .. } => {
            api.tenants.check_change(name, *slo, device.as_deref())
        }
        _ => return problem,
    };
    match checked {
        Ok(info::Verdict::Refused { refusal, ways }) => Problem::refused(refusal, ways),
        _ => problem,
    }
}

/// Returns the promise, the note and the device of the tenant that the call's path names; `None` if
/// there is no such tenant.
fn promise_of(call: &Call) -> Option<TenantPatch> {
    let shown = TenantStatus::from(call.api.tenants.get(&call.name)?);
    let (share, device) = (Some(shown.share), Some(shown.device));
    Some(TenantPatch { slo: shown.slo, share, note: shown.note, device })
}

/// Converts a change of a tenant to the registry's form.
fn meant(change: ChangeTenant) -> Result<TenantChange, Problem> {
    TenantChange::try_from(change).map_err(|why| Problem::new(Code::Invalid, why))
}
