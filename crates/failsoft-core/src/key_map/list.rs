//! Nodes in one piece of memory, and lists through them: a node is moved from list to list in a few steps.

use super::Node;

/// Nodes by number; the numbers of removed ones are used again.
pub(super) struct Nodes<N> {
    nodes: Vec<Option<N>>,
    free: Vec<usize>,
}

/// A node's neighbours in the list that it is in.
#[derive(Clone, Copy, Default)]
pub(super) struct Links {
    before: Option<usize>,
    after: Option<usize>,
}

/// A list through nodes.
#[derive(Default)]
pub(super) struct Ends {
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
}

impl<N> Default for Nodes<N> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }
}

impl<N> Nodes<N> {
    pub(super) fn get(&self, at: usize) -> Option<&N> {
        self.nodes.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut N> {
        self.nodes.get_mut(at)?.as_mut()
    }

    pub(super) fn add(&mut self, node: N) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.nodes[at] = Some(node);
                at
            }
            None => {
                self.nodes.push(Some(node));
                self.nodes.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<N> {
        let node = self.nodes.get_mut(at)?.take()?;
        self.free.push(at);
        Some(node)
    }
}

impl<K, V> Nodes<Node<K, V>> {
    fn links(&mut self, at: usize) -> Option<&mut Links> {
        self.get_mut(at).map(|node| &mut node.links)
    }
}

impl Ends {
    pub(super) const fn first(&self) -> Option<usize> {
        self.first
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Puts a node, which is in no list, at the end.
    pub(super) fn push<K, V>(&mut self, at: usize, nodes: &mut Nodes<Node<K, V>>) {
        let Some(links) = nodes.links(at) else { return };
        *links = Links { before: self.last, after: None };
        match self.last.and_then(|last| nodes.links(last)) {
            Some(links) => links.after = Some(at),
            None => self.first = Some(at),
        }
        self.last = Some(at);
        self.len += 1;
    }

    /// Takes a node, which is in this list, out of it.
    pub(super) fn take<K, V>(&mut self, at: usize, nodes: &mut Nodes<Node<K, V>>) {
        let Some(Links { before, after }) = nodes.links(at).map(std::mem::take) else { return };
        match before.and_then(|before| nodes.links(before)) {
            Some(links) => links.after = after,
            None => self.first = after,
        }
        match after.and_then(|after| nodes.links(after)) {
            Some(links) => links.before = before,
            None => self.last = before,
        }
        self.len = self.len.saturating_sub(1);
    }
}
