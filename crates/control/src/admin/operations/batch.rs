//! Changes of many tenants in one request.

use serde::Serialize;

use crate::admin::input::Body;
use crate::admin::model::{ChangeTenant, ChangeTenants, ChangedTenants, RemoveNamed, SetNamed};
use crate::admin::operation::Call;
use crate::admin::problem::{Code, Problem};
use crate::info::Refusal;
use crate::registry::TenantChange;

/// Maximum number of changes in one request: the number of tenants that a server was measured with.
const CHANGES_MAX: usize = 10_000;

/// Maximum size in bytes of a request that changes tenants: [`CHANGES_MAX`] changes with long names
/// and all members.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;

/// The audit note of a batch: the counts, and the changes if they are few.
#[derive(Serialize)]
struct BatchNote<'a> {
    #[serde(flatten)]
    counts: ChangedTenants,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a [ChangeTenant]>,
}

/// Maximum number of changes that are listed in the audit record.
const NOTED_MAX: usize = 16;

/// Adds, changes and removes tenants: all changes, or none.
pub(super) fn change_tenants(
    call: &Call,
    Body(wanted): Body<ChangeTenants>,
) -> Result<ChangedTenants, Problem> {
    let total = wanted.changes.len();
    if total > CHANGES_MAX {
        let message = format!("{total} changes, of which {CHANGES_MAX} can be made at once");
        return Err(Problem::new(Code::Invalid, message));
    }
    let counts = counts_of(&wanted.changes);
    let few = (total <= NOTED_MAX).then(|| wanted.changes.clone());
    let each = wanted.changes.into_iter().enumerate().map(|(n, one)| meant(n, one));
    let changes = each.collect::<Result<Vec<TenantChange>, Problem>>()?;
    match call.api.parts.inventory() {
        Some(inventory) => inventory.change_tenants(&changes)?,
        None => {
            let applied = call.api.tenants.apply(&changes);
            applied.map_err(|(n, why)| in_batch(n, &changes[n], why))?;
        }
    }
    call.note.after(&BatchNote { counts, changes: few.as_deref() });
    let ChangedTenants { added, changed, removed } = counts;
    tracing::info!(added, changed, removed, "tenants changed together");
    Ok(counts)
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

/// Converts change number `n` of a batch, counted from zero, to the registry's form. The number is
/// for the message of an error.
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
