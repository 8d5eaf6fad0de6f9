//! Changes of a namespace in use: its size, its name, and whether it is writable.

use contract::BLOCK_BYTES;
use control::admin::{self, Code, NamespacePatch, Problem};
use worker::Namespace;

use super::growth::RequiredBlocks;
use super::namespaces::{
    Namespaces, check_free, check_named_scratch, exports, find, invalid, list, whole_blocks,
};
use super::world::ServerSnapshot;
use super::{Changes, LiveState};
use crate::config::ServerNamespace;

impl Namespaces<'_> {
    /// Changes the size, the name or the writability of a namespace. On return, no device has a
    /// request that the change forbids: writes that a device had begun are carried out and answered
    /// before.
    pub(super) fn set_to(
        &self,
        inner: &mut LiveState,
        name: &str,
        to: &NamespacePatch,
    ) -> Result<admin::NamespaceStatus, Problem> {
        let blocks = to.bytes.map(whole_blocks).transpose()?;
        if let Some(new) = &to.name {
            spec::check_name(new).map_err(invalid)?;
        }
        let mut number = String::new();
        self.0.change(inner, |inner, changes| {
            let world = &inner.world;
            let space = find(world, name)?;
            number = space.number.0.to_string();
            let blocks = blocks.unwrap_or(space.place.blocks);
            check_size(world, space, blocks, to.shrink)?;
            let read_only = to.read_only.unwrap_or(space.place.read_only);
            let place = Namespace { blocks, read_only, ..space.place };
            let name = to.name.clone().unwrap_or_else(|| space.name.clone());
            if name != space.name {
                rename(world, changes, space, &name)?;
            }
            self.set(world, changes, &ServerNamespace { name, place, ..space.clone() });
            let more = blocks.saturating_sub(space.place.blocks);
            let need = RequiredBlocks { device: place.device, first: space.end(), blocks: more };
            Ok((more > 0).then_some(need).into_iter().collect())
        })?;
        tracing::info!(namespace = name, to = ?to, "namespace changed");
        self.told_one(&number)
    }
}

/// Checks that a namespace can have this many blocks.
fn check_size(
    world: &ServerSnapshot,
    space: &ServerNamespace,
    blocks: u64,
    shrink: bool,
) -> Result<(), Problem> {
    let now = space.place.blocks;
    if let (Some(file), true) = (&space.file, blocks != now) {
        return Err(invalid(format!(
            "namespace {:?} is the file {file}, whose size stays while it is served: stop the server, \
             mount the file system, and change the file (`truncate`)",
            space.name
        )));
    }
    if blocks < now && !shrink {
        return Err(shrinks(space));
    }
    let end = space.place.first + blocks;
    let behind = world.spaces.iter().find(|other| {
        other.place.device == space.place.device
            && other.number != space.number
            && other.place.first < end
            && other.end() > space.end()
    });
    match behind {
        Some(other) if blocks > now => {
            let message = format!("namespace {:?} lies right behind it", other.name);
            Err(Problem::new(Code::NoRoom, message))
        }
        _ => Ok(()),
    }
}

/// Makes subsystems that export a namespace by its name export it by its number, since its name is
/// about to become `name`. Fails if `name` is taken.
fn rename(
    world: &ServerSnapshot,
    changes: &mut Changes,
    space: &ServerNamespace,
    name: &str,
) -> Result<(), Problem> {
    check_free(world, name)?;
    check_named_scratch(world, &space.name)?;
    let names = |exported: &spec::Exported| matches!(exported, spec::Exported::Name(own) if *own == space.name);
    for subsystem in &world.config.subsystem {
        if subsystem.namespaces.iter().flatten().any(names) {
            list(changes, subsystem, exports(world, subsystem));
        }
    }
    Ok(())
}

fn shrinks(space: &ServerNamespace) -> Problem {
    let bytes = space.place.blocks * BLOCK_BYTES as u64;
    let message = format!(
        "namespace {:?} has {bytes} bytes; making it smaller loses what lies behind its new end, so \
         that has to be said: `--shrink`",
        space.name
    );
    Problem::new(Code::Shrinks, message)
}
