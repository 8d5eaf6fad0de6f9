//! A model of POSIX in memory: what each operation should answer.

use std::collections::BTreeMap;

use nearflash_contigfs::*;

/// An inode. Its number is the one that the file system chose.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    pub(crate) parent: Ino,
    pub(crate) children: BTreeMap<Vec<u8>, Ino>,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Pages of the content that are not all zeroes.
    pub(crate) data: BTreeMap<u64, Vec<u8>>,
    /// The last step at which size and times were to be committed.
    pub(crate) synced: u64,
}

impl Node {
    pub(crate) fn kind(&self) -> u32 {
        self.attributes.mode & S_IFMT
    }

    pub(crate) fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let end = (offset + bytes).min(self.attributes.size);
        let zeroes = vec![0; 4096];
        let mut read = Vec::new();
        let mut at = offset;
        while at < end {
            let page = self.data.get(&(at / 4096)).unwrap_or(&zeroes);
            let from = (at % 4096) as usize;
            let length = (4096 - from).min((end - at) as usize);
            read.extend_from_slice(&page[from..from + length]);
            at += length as u64;
        }
        read
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let page = self.data.entry(at / 4096).or_insert_with(|| vec![0; 4096]);
            let from = (at % 4096) as usize;
            let length = (4096 - from).min(bytes.len() - done);
            page[from..from + length].copy_from_slice(&bytes[done..done + length]);
            done += length;
        }
        self.attributes.size = self.attributes.size.max(offset + bytes.len() as u64);
    }

    fn zero(&mut self, from: u64, to: u64) {
        for (page, data) in &mut self.data {
            for (at, byte) in (page * 4096..).zip(data) {
                if (from..to).contains(&at) {
                    *byte = 0;
                }
            }
        }
    }
}

/// A tree, and the users of its inodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) nodes: BTreeMap<Ino, Node>,
    /// Openings and lookups by inode.
    pub(crate) users: BTreeMap<Ino, u64>,
    pub(crate) step: u64,
}

type Result<T> = std::result::Result<T, Errno>;

impl Model {
    pub(crate) fn new(root: Attributes) -> Model {
        let node = Node { attributes: root, parent: ROOT, ..Node::default() };
        Model { nodes: BTreeMap::from([(ROOT, node)]), ..Model::default() }
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Errno::STALE)
    }

    pub(crate) fn at(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("the model has the inode")
    }

    fn directory(&self, ino: Ino) -> Result<&Node> {
        let node = self.node(ino)?;
        if node.kind() == S_IFDIR { Ok(node) } else { Err(Errno::NOTDIR) }
    }

    fn regular(&self, ino: Ino) -> Result<&Node> {
        match self.node(ino)?.kind() {
            S_IFREG => self.node(ino),
            S_IFDIR => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Lets an inode go that nobody needs.
    pub(crate) fn let_go(&mut self, ino: Ino) {
        let unused = self.users.get(&ino).is_none_or(|users| *users == 0);
        if unused && self.nodes.get(&ino).is_some_and(|node| node.attributes.nlink == 0) {
            self.nodes.remove(&ino);
        }
    }

    /// Lets all users go, as a crash does.
    pub(crate) fn forget_users(&mut self) {
        self.users.clear();
        self.nodes.retain(|_, node| node.attributes.nlink > 0);
    }

    fn touch(&mut self, now: Time, ino: Ino) {
        let node = self.at(ino);
        (node.attributes.mtime, node.attributes.ctime) = (now, now);
    }

    fn named(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.directory(parent)?;
        match name {
            _ if name.len() > 255 => Err(Errno::NAMETOOLONG),
            b"." | b".." => Err(Errno::EXIST),
            _ if name.is_empty() || name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
            _ if self.node(parent)?.attributes.nlink == 0 => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    fn find(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        match self.named(parent, name) {
            Err(Errno::EXIST) => Err(Errno::INVAL),
            other => other,
        }?;
        self.directory(parent)?.children.get(name).copied().ok_or(Errno::NOENT)
    }

    fn free(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.named(parent, name)?;
        let taken = self.node(parent)?.children.contains_key(name);
        if taken { Err(Errno::EXIST) } else { Ok(()) }
    }

    /// Applies an operation. `made` is what the file system answered, for the numbers of new
    /// inodes.
    pub(crate) fn apply(
        &mut self,
        now: Time,
        caller: &Caller,
        operation: Operation,
        made: Option<&Attributes>,
    ) -> Result<OperationResult> {
        use Operation as O;
        self.step += 1;
        match operation {
            O::Lookup { parent, name } => self.lookup(parent, name),
            O::Attributes { ino } => Ok(OperationResult::Attributes(self.node(ino)?.attributes)),
            O::Change { ino, change } => self.change(now, ino, &change),
            O::Make { parent, name, mode, rdev } => {
                self.free(parent, name)?;
                let kind = mode & S_IFMT;
                let mut node = self.fresh(now, caller, parent, mode, made);
                if kind == S_IFDIR {
                    node.parent = parent;
                    self.at(parent).attributes.nlink += 1;
                } else if kind == S_IFCHR || kind == S_IFBLK {
                    node.attributes.rdev = rdev;
                }
                self.add(now, parent, name, node)
            }
            O::Symlink { parent, name, target } => {
                match target.len() {
                    0 => return Err(Errno::NOENT),
                    4096.. => return Err(Errno::NAMETOOLONG),
                    _ => self.free(parent, name)?,
                }
                let mut node = self.fresh(now, caller, parent, S_IFLNK | 0o777, made);
                node.attributes.size = target.len() as u64;
                node.target = target.to_vec();
                self.add(now, parent, name, node)
            }
            O::ReadLink { ino } => match self.node(ino)? {
                node if node.kind() == S_IFLNK => Ok(OperationResult::Bytes(node.target.clone())),
                _ => Err(Errno::INVAL),
            },
            O::Link { ino, parent, name } => self.link(now, ino, parent, name),
            O::Unlink { parent, name } => {
                let ino = self.find(parent, name)?;
                if self.node(ino)?.kind() == S_IFDIR {
                    return Err(Errno::ISDIR);
                }
                self.drop_name(now, parent, name);
                self.drop_links(now, ino, 1);
                Ok(OperationResult::Done)
            }
            O::RemoveDirectory { parent, name } => self.remove_directory(now, parent, name),
            O::Rename { parent, name, to_parent, to_name, how } => {
                self.rename(now, (parent, name), (to_parent, to_name), how)
            }
            O::Open { ino, .. } => {
                self.node(ino)?;
                *self.users.entry(ino).or_default() += 1;
                Ok(OperationResult::Done)
            }
            O::Release { ino, .. } => {
                *self.users.get_mut(&ino).expect("the inode is open") -= 1;
                self.let_go(ino);
                Ok(OperationResult::Done)
            }
            O::Fsync { ino } => {
                self.node(ino)?;
                self.at(ino).synced = self.step;
                Ok(OperationResult::Done)
            }
            O::GetXattr { ino, name } => {
                let value = self.node(ino)?.xattrs.get(name).cloned();
                value.map(OperationResult::Bytes).ok_or(Errno::NODATA)
            }
            O::SetXattr { ino, name, value, how } => self.set_xattr(now, ino, name, value, how),
            O::ListXattrs { ino } => {
                let names =
                    self.node(ino)?.xattrs.keys().flat_map(|name| [name, &[0][..]].concat());
                Ok(OperationResult::Bytes(names.collect()))
            }
            O::RemoveXattr { ino, name } => {
                self.node(ino)?;
                self.at(ino).xattrs.remove(name).ok_or(Errno::NODATA)?;
                self.changed(now, ino);
                Ok(OperationResult::Done)
            }
            O::Allocate { ino, offset, bytes, keep_size } => {
                self.regular(ino)?;
                if !keep_size && offset + bytes > self.node(ino)?.attributes.size {
                    self.set_size(now, ino, offset + bytes);
                }
                Ok(OperationResult::Done)
            }
            O::Zero { ino, offset, bytes, keep_size } => {
                self.regular(ino)?;
                self.touch(now, ino);
                self.at(ino).zero(offset, offset + bytes);
                if !keep_size && offset + bytes > self.node(ino)?.attributes.size {
                    self.set_size(now, ino, offset + bytes);
                }
                Ok(OperationResult::Done)
            }
            O::Seek { ino, offset, what } => match self.regular(ino)?.attributes.size {
                size if offset >= size => Err(Errno::NXIO),
                _ if what == SeekTarget::Data => Ok(OperationResult::Offset(offset)),
                size => Ok(OperationResult::Offset(size)),
            },
            O::Statistics => Ok(OperationResult::Done),
        }
    }

    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<OperationResult> {
        let node = self.directory(parent)?;
        let ino = match name {
            b"." => parent,
            b".." => node.parent,
            _ if name.len() > 255 => return Err(Errno::NAMETOOLONG),
            _ => *node.children.get(name).ok_or(Errno::NOENT)?,
        };
        *self.users.entry(ino).or_default() += 1;
        Ok(OperationResult::Entry(self.node(ino)?.attributes))
    }

    fn fresh(
        &self,
        now: Time,
        caller: &Caller,
        parent: Ino,
        mode: u32,
        made: Option<&Attributes>,
    ) -> Node {
        let above = self.nodes[&parent].attributes;
        let made = made.copied().unwrap_or_default();
        let (mut mode, mut gid) = (mode, caller.gid);
        if above.mode & S_ISGID != 0 {
            gid = above.gid;
            if mode & S_IFMT == S_IFDIR {
                mode |= S_ISGID;
            } else if mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
                && caller.uid != 0
                && caller.gid != gid
                && !caller.groups.contains(&gid)
            {
                mode &= !S_ISGID;
            }
        }
        let attributes = Attributes {
            ino: made.ino,
            generation: made.generation,
            mode,
            nlink: if mode & S_IFMT == S_IFDIR { 2 } else { 1 },
            uid: caller.uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            birth: now,
            ..Attributes::default()
        };
        Node { attributes, synced: self.step, ..Node::default() }
    }

    fn add(&mut self, now: Time, parent: Ino, name: &[u8], node: Node) -> Result<OperationResult> {
        let attributes = node.attributes;
        self.touch(now, parent);
        self.at(parent).children.insert(name.to_vec(), attributes.ino);
        assert!(self.nodes.insert(attributes.ino, node).is_none(), "a new inode has a new number");
        *self.users.entry(attributes.ino).or_default() += 1;
        Ok(OperationResult::Entry(attributes))
    }

    fn changed(&mut self, now: Time, ino: Ino) {
        let step = self.step;
        let node = self.at(ino);
        node.attributes.ctime = now;
        node.synced = step;
    }

    fn drop_name(&mut self, now: Time, parent: Ino, name: &[u8]) {
        self.at(parent).children.remove(name);
        self.touch(now, parent);
    }

    fn drop_links(&mut self, now: Time, ino: Ino, links: u32) {
        self.at(ino).attributes.nlink -= links;
        self.changed(now, ino);
        self.let_go(ino);
    }

    fn link(&mut self, now: Time, ino: Ino, parent: Ino, name: &[u8]) -> Result<OperationResult> {
        if self.node(ino)?.kind() == S_IFDIR {
            return Err(Errno::PERM);
        }
        self.free(parent, name)?;
        match self.node(ino)?.attributes.nlink {
            0 => return Err(Errno::NOENT),
            65_000.. => return Err(Errno::MLINK),
            _ => {}
        }
        self.at(ino).attributes.nlink += 1;
        self.changed(now, ino);
        self.at(parent).children.insert(name.to_vec(), ino);
        self.touch(now, parent);
        *self.users.entry(ino).or_default() += 1;
        Ok(OperationResult::Entry(self.node(ino)?.attributes))
    }

    fn remove_directory(&mut self, now: Time, parent: Ino, name: &[u8]) -> Result<OperationResult> {
        if name == b".." {
            return Err(Errno::NOTEMPTY);
        }
        let ino = self.find(parent, name)?;
        if !self.directory(ino)?.children.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.drop_name(now, parent, name);
        self.at(parent).attributes.nlink -= 1;
        self.drop_links(now, ino, 2);
        Ok(OperationResult::Done)
    }

    fn is_within(&self, mut ino: Ino, above: Ino) -> bool {
        while ino != above && ino != ROOT {
            ino = self.nodes[&ino].parent;
        }
        ino == above
    }

    fn rename(
        &mut self,
        now: Time,
        (parent, name): (Ino, &[u8]),
        (to_parent, to_name): (Ino, &[u8]),
        how: RenameMode,
    ) -> Result<OperationResult> {
        let source = self.find(parent, name)?;
        match self.named(to_parent, to_name) {
            Err(Errno::EXIST) => Err(Errno::INVAL),
            other => other,
        }?;
        let target = self.node(to_parent)?.children.get(to_name).copied();
        match (how, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            _ if self.is_within(to_parent, source) => return Err(Errno::INVAL),
            (_, Some(target)) if target == source => return Ok(OperationResult::Done),
            (RenameMode::Exchange, Some(target)) if self.is_within(parent, target) => {
                return Err(Errno::INVAL);
            }
            _ => {}
        }
        let is_directory = self.node(source)?.kind() == S_IFDIR;
        if let (Some(target), RenameMode::Replace) = (target, how) {
            let over = self.node(target)?;
            match (is_directory, over.kind() == S_IFDIR) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !over.children.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
        }
        self.drop_name(now, parent, name);
        self.touch(now, to_parent);
        self.at(to_parent).children.insert(to_name.to_vec(), source);
        self.arrive(now, source, parent, to_parent);
        match (target, how) {
            (Some(target), RenameMode::Exchange) => {
                self.at(parent).children.insert(name.to_vec(), target);
                self.arrive(now, target, to_parent, parent);
            }
            (Some(target), _) if is_directory => {
                self.at(to_parent).attributes.nlink -= 1;
                self.drop_links(now, target, 2);
            }
            (Some(target), _) => self.drop_links(now, target, 1),
            (None, _) => {}
        }
        Ok(OperationResult::Done)
    }

    fn arrive(&mut self, now: Time, ino: Ino, from: Ino, to: Ino) {
        self.changed(now, ino);
        if self.nodes[&ino].kind() == S_IFDIR {
            self.at(ino).parent = to;
            self.at(from).attributes.nlink -= 1;
            self.at(to).attributes.nlink += 1;
        }
    }

    fn set_xattr(
        &mut self,
        now: Time,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> Result<OperationResult> {
        let has = self.node(ino)?.xattrs.contains_key(name);
        match how {
            _ if name.is_empty() => return Err(Errno::INVAL),
            _ if name.len() > 255 => return Err(Errno::RANGE),
            XattrMode::Create if has => return Err(Errno::EXIST),
            XattrMode::Replace if !has => return Err(Errno::NODATA),
            _ => {}
        }
        let others = self.node(ino)?.xattrs.iter().filter(|(has, _)| *has != name);
        let bytes: usize = others.map(|(name, value)| 3 + name.len() + value.len()).sum();
        if bytes + 3 + name.len() + value.len() > 2 * 4072 {
            return Err(Errno::NOSPC);
        }
        self.at(ino).xattrs.insert(name.to_vec(), value.to_vec());
        self.changed(now, ino);
        Ok(OperationResult::Done)
    }

    fn set_size(&mut self, now: Time, ino: Ino, size: u64) {
        self.touch(now, ino);
        let step = self.step;
        let node = self.at(ino);
        node.synced = step;
        node.attributes.size = size;
        node.zero(size, u64::MAX);
        node.data.retain(|page, _| page * 4096 < size);
    }

    fn change(&mut self, now: Time, ino: Ino, change: &AttributeChange) -> Result<OperationResult> {
        let node = self.node(ino)?;
        match (change.size, node.kind()) {
            (None, _) => {}
            (Some(size), S_IFREG) => self.set_size(now, ino, size),
            (Some(_), S_IFDIR) => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        self.changed(now, ino);
        let attributes = &mut self.at(ino).attributes;
        let mode = attributes.mode;
        if let Some(set) = change.mode {
            attributes.mode = mode & S_IFMT | set & 0o7777;
        } else if (change.uid.is_some() || change.gid.is_some()) && mode & S_IFMT != S_IFDIR {
            attributes.mode &= !S_ISUID;
            if mode & S_IXGRP != 0 {
                attributes.mode &= !S_ISGID;
            }
        }
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        attributes.atime = change.atime.map_or(attributes.atime, time);
        attributes.mtime = change.mtime.map_or(attributes.mtime, time);
        attributes.ctime = change.ctime.unwrap_or(now);
        Ok(OperationResult::Attributes(*attributes))
    }
}

/// Returns attributes without those that the model does not know: the pages of directories.
pub(crate) fn comparable(mut attributes: Attributes) -> Attributes {
    if attributes.mode & S_IFMT == S_IFDIR {
        attributes.size = 0;
    }
    attributes.blocks = 0;
    attributes
}
