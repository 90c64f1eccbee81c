//! The names of a graph while it is imported: what they stand for, which node makes each, and how often it is read.

use std::cell::Cell;
use std::collections::HashMap;

use prost::bytes::Bytes;
use tiled_tensor::{filled, push};

use super::site::constant;
use super::value::Value;
use super::{Import, decoded, for_each_plan};
use crate::wire::{names_of_graphs, names_of_node};
use crate::{OnnxError, Reason};

/// A graph, which reads names of those around it too.
pub(super) struct Scope<'a> {
    /// Its nodes, as bytes of the file.
    pub(super) nodes: &'a [Bytes],
    /// The numbers of its own names.
    names: HashMap<&'a str, u32>,
    /// What each of its nodes is needed for.
    needs: Vec<Cell<Need>>,
    /// The graph around it.
    outer: Option<&'a Scope<'a>>,
    /// In how many others it is.
    pub(super) depth: usize,
}

/// What a name stands for.
#[derive(Debug)]
pub(super) struct Named {
    /// Nothing before it is made, and once nobody reads it any more.
    pub(super) value: Option<Box<Value>>,
    /// The node that makes it.
    maker: u32,
    /// How often it is read still.
    pub(super) reads: u32,
}

/// What a node is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Nothing, or it was imported.
    Nothing,
    /// An output.
    Output,
    /// Graphs within nodes, of which one may be taken.
    Graph,
}

impl<'a> Scope<'a> {
    pub(super) fn new(nodes: &'a [Bytes], outer: Option<&'a Self>) -> Self {
        let depth = outer.map_or(0, |outer| outer.depth + 1);
        Self { nodes, names: HashMap::new(), needs: Vec::new(), outer, depth }
    }

    /// The number of a name, of this graph or else of the nearest around it.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        let mut scopes = std::iter::successors(Some(self), |scope| scope.outer);
        scopes.find_map(|scope| scope.names.get(name)).map(|number| *number as usize)
    }

    /// Whether an output needs the node at this position, which was not imported yet and is from now on.
    pub(super) fn starts(&self, position: usize) -> bool {
        self.starts_for(position, Need::Output)
    }

    fn starts_for(&self, position: usize, need: Need) -> bool {
        let is_needed = self.needs[position].get() == need;
        if is_needed {
            self.needs[position].set(Need::Nothing);
        }
        is_needed
    }
}

/// The maker of what no node makes.
const NOBODY: u32 = u32::MAX;

impl Import {
    /// The number of a name of this graph itself.
    pub(super) fn number<'a>(&mut self, scope: &mut Scope<'a>, name: &'a str) -> Result<usize, OnnxError> {
        let next = self.values.len();
        let number = *scope.names.entry(name).or_insert(u32::try_from(next).unwrap_or(NOBODY));
        if number as usize == next {
            push(&mut self.values, Named { value: None, maker: NOBODY, reads: 0 })?;
        }
        Ok(number as usize)
    }

    pub(super) fn set(&mut self, number: usize, value: Value) {
        for_each_plan(&value, &mut |plan| self.plans.hold(plan));
        self.unset(number);
        self.values[number].value = Some(Box::new(value));
    }

    fn unset(&mut self, number: usize) {
        if let Some(value) = self.values[number].value.take() {
            for_each_plan(&value, &mut |plan| self.plans.release(plan));
        }
    }

    /// Forgets the names with this number and those behind it: those of graphs that are imported.
    pub(super) fn leave(&mut self, first: usize) {
        (first..self.values.len()).for_each(|number| self.unset(number));
        self.values.truncate(first);
    }

    /// Finds which node makes each value and how often each is read; notes which nodes these outputs need.
    pub(super) fn needed<'s>(
        &mut self,
        scope: &mut Scope<'_>,
        outputs: impl Iterator<Item = &'s str>,
    ) -> Result<(), OnnxError> {
        self.makers(scope)?;
        let mut needs = filled(scope.nodes.len(), Cell::new(Need::Nothing))?;
        let (mut left, mut of_graphs) = (Vec::new(), Vec::new());
        for output in outputs {
            self.read(scope, output, &mut left)?;
        }
        while let Some(maker) = left.pop() {
            if needs[maker as usize].replace(Need::Output) == Need::Nothing {
                let bytes = &scope.nodes[maker as usize];
                for name in names_of_node(bytes, READ) {
                    self.read(scope, name, &mut left)?;
                }
                for name in names_of_graphs(bytes) {
                    self.read(scope, name, &mut of_graphs)?;
                }
            }
        }
        while let Some(maker) = of_graphs.pop() {
            let need = needs[maker as usize].get_mut();
            if *need == Need::Nothing {
                *need = Need::Graph;
                for name in all_names(&scope.nodes[maker as usize]) {
                    self.read(scope, name, &mut of_graphs)?;
                }
            }
        }
        scope.needs = needs;
        Ok(())
    }

    /// Enters what each node makes.
    fn makers(&mut self, scope: &mut Scope<'_>) -> Result<(), OnnxError> {
        for (position, bytes) in scope.nodes.iter().enumerate() {
            let node = decoded(bytes)?; // that it can be, whether or not it is needed
            for name in names_of_node(bytes, MADE).filter(|name| !name.is_empty()) {
                let number = self.number(scope, name)?;
                let named = &mut self.values[number];
                let is_made = named.value.is_some() || named.maker != NOBODY;
                if named.value.is_none() {
                    named.maker = u32::try_from(position).unwrap_or(NOBODY);
                }
                if is_made {
                    let place = self.place(&node);
                    self.refuse(place, Reason::MadeTwice { name: name.to_owned() });
                }
            }
        }
        Ok(())
    }

    /// Counts one more that reads a name, and leaves the node of this graph that makes it to be looked at.
    fn read(&mut self, scope: &Scope<'_>, name: &str, left: &mut Vec<u32>) -> Result<(), OnnxError> {
        if let Some(number) = scope.number(name) {
            let named = &mut self.values[number];
            named.reads = named.reads.saturating_add(1);
            if named.maker != NOBODY && scope.names.contains_key(name) {
                push(left, named.maker)?;
            }
        }
        Ok(())
    }

    /// Forgets what a node, with the graphs in it, was the last to read.
    pub(super) fn release(&mut self, scope: &Scope<'_>, node: &[u8]) {
        for number in all_names(node).filter_map(|name| scope.number(name)) {
            let named = &mut self.values[number];
            named.reads = named.reads.saturating_sub(1);
            if named.reads == 0 {
                self.unset(number);
            }
        }
    }

    /// The nodes before this position that these names need and that only graphs within nodes do, in their order: they are imported
    /// from now on.
    pub(super) fn starts_of_graph<'s>(
        &self,
        scope: &Scope<'_>,
        position: usize,
        names: impl Iterator<Item = &'s str>,
    ) -> Result<Vec<usize>, OnnxError> {
        let maker = |name: &str| {
            let maker = self.values[*scope.names.get(name)? as usize].maker;
            (maker != NOBODY).then_some(maker as usize)
        };
        let (mut left, mut all) = (Vec::new(), Vec::new());
        for maker in names.filter_map(maker) {
            push(&mut left, maker)?;
        }
        while let Some(node) = left.pop() {
            if node < position && scope.starts_for(node, Need::Graph) {
                push(&mut all, node)?;
                for maker in all_names(&scope.nodes[node]).filter_map(maker) {
                    push(&mut left, maker)?;
                }
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// What a name stands for where a node of this graph reads it.
    pub(super) fn value(&mut self, scope: &Scope<'_>, name: &str) -> Result<Value, Reason> {
        let missing = || Reason::MissingValue { name: name.to_owned() };
        let number = scope.number(name).ok_or_else(missing)?;
        let Named { value, maker, .. } = &self.values[number];
        match value.as_deref() {
            Some(Value::Initialiser(tensor)) => {
                let value = Value::Constant(constant(&mut self.tensors, *tensor)?);
                self.set(number, value.clone());
                Ok(value)
            }
            Some(Value::Second(position)) => {
                Err(Reason::Second { name: name.to_owned(), position: *position })
            }
            Some(value) => Ok(value.clone()),
            None if *maker != NOBODY => Err(Reason::LaterValue { name: name.to_owned() }),
            None => Err(missing()),
        }
    }
}

/// The names that a node reads, and those that graphs in it read.
fn all_names(node: &[u8]) -> impl Iterator<Item = &str> {
    names_of_node(node, READ).chain(names_of_graphs(node))
}

/// The fields of a node for the values that it reads and those that it makes.
pub(super) const READ: u64 = 1;
const MADE: u64 = 2;
