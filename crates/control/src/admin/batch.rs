//! Changes of many tenants in one request.

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use serde::Serialize;

use super::audit::Note;
use super::blocking::blocking;
use super::model::{ChangeTenant, ChangeTenants, ChangedTenants, RemoveNamed, SetNamed};
use super::problem::{Code, Failure, Problem};
use super::routes::{Api, Body};
use crate::info::Refusal;
use crate::registry::TenantChange;

/// Maximum number of changes in one request: the number of tenants that a server was measured with.
const CHANGES_MAX: usize = 10_000;

/// Maximum size of such a request in bytes: that many changes with long names and all members.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Returns the limit of the request's size.
pub(super) fn limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(BODY_BYTES_MAX)
}

/// The audit note of a batch: the counts, and the changes if they are few.
#[derive(Serialize)]
struct Noted<'a> {
    #[serde(flatten)]
    counts: ChangedTenants,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a [ChangeTenant]>,
}

/// Maximum number of changes that are listed in the audit record.
const NOTED_MAX: usize = 16;

/// Adds, changes and removes tenants: all changes, or none.
#[utoipa::path(
    patch,
    path = "/v1/tenants",
    request_body = ChangeTenants,
    responses(
        (status = 200, body = ChangedTenants),
        (status = 400, description = "A change makes no sense, or there are too many; the message says which", body = Failure),
        (status = 404, description = "A tenant is not there", body = Failure),
        (status = 409, description = "A name is taken, an SLO does not fit, something names a tenant that is to go, or the table is full", body = Failure),
        (status = 422, description = "A device is not there, or its model is not, or does not know the percentile", body = Failure),
    )
)]
pub(super) async fn change_tenants(
    State(api): State<Api>,
    note: Note,
    Body(wanted): Body<ChangeTenants>,
) -> Result<Json<ChangedTenants>, Problem> {
    let total = wanted.changes.len();
    if total > CHANGES_MAX {
        let message = format!("{total} changes, of which {CHANGES_MAX} can be made at once");
        return Err(Problem::new(Code::Invalid, message));
    }
    let counts = counts_of(&wanted.changes);
    let few = (total <= NOTED_MAX).then(|| wanted.changes.clone());
    let each = wanted.changes.into_iter().enumerate().map(|(n, one)| meant(n, one));
    let changes = each.collect::<Result<Vec<TenantChange>, Problem>>()?;
    blocking(move || {
        let done = match api.parts.inventory() {
            Some(inventory) => inventory.change_tenants(&changes),
            None => api.tenants.apply(&changes).map_err(|(n, why)| in_batch(n, &changes[n], why)),
        };
        if done.is_ok() {
            note.after(&Noted { counts, changes: few.as_deref() });
        }
        note.ended(done.as_ref().err().map(|problem| problem.code));
        done
    })
    .await?;
    let ChangedTenants { added, changed, removed } = counts;
    tracing::info!(added, changed, removed, "tenants changed together");
    Ok(Json(counts))
}

fn counts_of(changes: &[ChangeTenant]) -> ChangedTenants {
    let mut counts = ChangedTenants::default();
    for change in changes {
        *match change {
            ChangeTenant::Add(_) => &mut counts.added,
            ChangeTenant::Set(_) => &mut counts.changed,
            ChangeTenant::Remove(_) => &mut counts.removed,
        } += 1;
    }
    counts
}

/// Converts a change to the registry's form.
fn meant(n: usize, change: ChangeTenant) -> Result<TenantChange, Problem> {
    let name = match &change {
        ChangeTenant::Add(one) => one.name.clone(),
        ChangeTenant::Set(SetNamed { name, .. }) | ChangeTenant::Remove(RemoveNamed { name }) => {
            name.clone()
        }
    };
    let meant = TenantChange::try_from(change);
    meant.map_err(|why| Problem::new(Code::Invalid, about(n, &name, &why)))
}

/// Returns the problem of a refused batch, which names the refused change by its position, counted
/// from zero.
pub fn in_batch(n: usize, change: &TenantChange, refusal: Refusal) -> Problem {
    let problem = Problem::from(refusal);
    Problem { message: about(n, change.name(), &problem.message), ..problem }
}

fn about(n: usize, name: &str, message: &str) -> String {
    format!("changes[{n}], tenant {name:?}: {message}; none of the changes was made")
}

/// The OpenAPI document of this module.
pub(super) mod documented {
    use super::*;
    use utoipa::OpenApi;

    #[derive(OpenApi)]
    #[openapi(paths(change_tenants))]
    pub(in crate::admin) struct Document;
}
