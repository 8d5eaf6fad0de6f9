//! The export of a server's state as one document, and the import of such a document while the
//! server runs.
//!
//! An import is a reload: from the state that is served, as if a configuration said all of it, to
//! the state of the document. So it opens, grows, notifies and refuses in the same way. What the
//! server comes to is stored as changes of its own configuration before anybody is told of it.

use std::cell::RefCell;

use control::admin::{Code, ImportState, Imported, Problem, ServerState};

use super::Changes;
use super::inner::{LiveState, not_kept, places_of};
use super::reconciler::Reconciler;
use super::reload::{self, Reload};
use super::setup::Setup;
use crate::config::Config;

/// Exports and imports the state of a server.
pub(super) struct Import<'a>(pub(super) &'a Reconciler);

impl Import<'_> {
    /// Returns the document of the state, without keys and tokens.
    pub(super) fn export(inner: &LiveState) -> Result<ServerState, Problem> {
        let now = inner.changes.made_to(&inner.base);
        let document = Setup::of(&now).hidden().to_toml();
        Ok(ServerState { document: document.map_err(invalid)? })
    }

    /// Brings the server to the state of a document, as far as possible. A dry run only returns
    /// what would change.
    pub(super) fn take(
        &self,
        inner: &mut LiveState,
        asked: &ImportState,
    ) -> Result<Imported, Problem> {
        let setup = Setup::parse(&asked.document);
        let setup = setup.map_err(|mistakes| invalid(mistakes.told(None)))?;
        let (changes, mut left) = setup.changes(&inner.base, &inner.changes).map_err(invalid)?;
        let now = inner.changes.made_to(&inner.base);
        let wanted = changes.made_to(&inner.base);
        let changes = Setup::of(&now).lines_to(&Setup::of(&wanted)).map_err(invalid)?;
        if asked.dry_run {
            left.extend(reload::foresee(&self.0.ground.tenants, &now, &wanted));
        } else if !changes.is_empty() {
            left.extend(self.reload(inner, now, wanted)?);
        }
        Ok(Imported { changes, left })
    }

    /// Reloads `wanted` over `now`, a configuration that states all of the present state. Returns
    /// the differences that were not applied.
    fn reload(
        &self,
        inner: &mut LiveState,
        now: Config,
        wanted: Config,
    ) -> Result<Vec<String>, Problem> {
        let base = std::mem::replace(&mut inner.base, now);
        let before = std::mem::take(&mut inner.changes);
        inner.changes = before.besides();
        inner.places = places_of(&inner.base);
        let store = RefCell::new(inner.store.take());
        let save = |changes: &Changes| match &mut *store.borrow_mut() {
            Some(store) => store.save(changes).map_err(|error| not_kept(store, &error)),
            None => Ok(()),
        };
        let keep = |reached: &Config| save(&before.to(&base, reached).of(&base));
        let taken = Reload::of_operator(self.0, &keep).take(inner, wanted);
        let besides = std::mem::take(&mut inner.changes);
        let reached = std::mem::replace(&mut inner.base, base);
        inner.places = places_of(&inner.base);
        inner.changes = match &taken {
            Ok(_) => besides.to(&inner.base, &reached),
            Err(_) => before.clone(),
        };
        // What could not go, and the disks that are there now.
        let saved = save(&inner.changes);
        inner.store = store.into_inner();
        inner.refresh_config();
        self.0.show(inner);
        let reloaded = taken?;
        saved?;
        Ok(reloaded.later.into_iter().chain(reloaded.unread).collect())
    }
}

fn invalid(error: String) -> Problem {
    Problem::new(Code::Invalid, error)
}
