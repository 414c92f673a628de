//! Places the goals of a workflow in a drawing. The goals are in layers: each goal is beneath the
//! goals on which it depends. If a goal, such as a loop, has other goals as its members, the box of
//! the goal contains their boxes.

use std::collections::HashMap;

use crate::workflow::{GoalForm, GoalGraph};

/// Width of a goal without members, in units of the drawing. `HEIGHT` is the height of such a goal,
/// and `GAP` is the space around boxes.
const WIDTH: usize = 190;
const HEIGHT: usize = 61;
const GAP: usize = 26;
/// Maximum number of boxes side by side. A layer with more boxes continues in a further row.
const COLUMNS: usize = 5;
/// Maximum depth to which goals are drawn inside other goals. Goals at a greater depth are not
/// drawn.
const DEPTH_MAX: usize = 16;

/// The box of a goal in the drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoalBox {
    pub goal: usize,
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

impl GoalBox {
    /// Returns the point where incoming edges meet the box.
    pub fn top(&self) -> (usize, usize) {
        (self.x + self.width / 2, self.y)
    }

    /// Returns the point where outgoing edges leave the box.
    pub fn bottom(&self) -> (usize, usize) {
        (self.x + self.width / 2, self.y + self.height)
    }

    /// Returns the middle of the right side of this box. The line from the last goal of a loop back
    /// to the first goal begins and ends at such points.
    pub fn right(&self) -> (usize, usize) {
        (self.x + self.width, self.y + self.height / 2)
    }
}

/// The boxes of the drawn goals, and the edges between them. An edge connects two members of the
/// same goal, or two goals that are members of no goal. In `boxes`, a goal comes before its
/// members.
#[derive(Debug, Default)]
pub(super) struct GoalLayout {
    pub boxes: Vec<GoalBox>,
    /// Pairs of goals. The second goal of a pair depends on the first.
    pub edges: Vec<(usize, usize)>,
    /// For each loop, the last member and the first member of the loop.
    pub ways_back: Vec<(usize, usize)>,
    pub width: usize,
    pub height: usize,
}

impl GoalLayout {
    /// Creates the drawing's layout for the goals of a workflow definition.
    pub fn new(graph: &GoalGraph<'_>) -> Self {
        let top: Vec<_> =
            (0..graph.len()).filter(|goal| graph.membership(*goal).is_none()).collect();
        Self::of_list(graph, &top, 0)
    }

    /// Returns the box of a goal; `None` if the drawing does not contain the goal.
    pub fn of(&self, goal: usize) -> Option<&GoalBox> {
        self.boxes.iter().find(|found| found.goal == goal)
    }

    fn of_list(graph: &GoalGraph<'_>, list: &[usize], depth: usize) -> Self {
        let mut drawn = Self::default();
        let mut y = 0;
        for layer in layers_of(graph, list, &mut drawn.edges) {
            for row in layer.chunks(COLUMNS) {
                let mut x = 0;
                let mut height = 0;
                for goal in row {
                    let inner = Self::of_goal(graph, *goal, depth);
                    height = height.max(inner.height);
                    let width = inner.width;
                    drawn.add(inner, x, y);
                    x += width + GAP;
                }
                drawn.width = drawn.width.max(x.saturating_sub(GAP));
                y += height + GAP;
            }
        }
        drawn.height = y.saturating_sub(GAP);
        drawn
    }

    /// Creates the layout of one goal. The box of the goal contains the boxes of its members.
    fn of_goal(graph: &GoalGraph<'_>, goal: usize, depth: usize) -> Self {
        let mut list = graph.members(goal);
        list.extend(graph.verifier(goal));
        list.extend(graph.fallback(goal));
        let mut drawn = Self { width: WIDTH, height: HEIGHT, ..Self::default() };
        if depth < DEPTH_MAX {
            drawn.ways_back.extend(way_back(graph, goal));
        }
        let mut members = Self::default();
        if !list.is_empty() && depth < DEPTH_MAX {
            members = Self::of_list(graph, &list, depth + 1);
            drawn.width = WIDTH.max(members.width + GAP);
            drawn.height = HEIGHT + members.height + GAP / 2;
        }
        let own = GoalBox { goal, x: 0, y: 0, width: drawn.width, height: drawn.height };
        drawn.boxes.push(own);
        let width = drawn.width;
        let height = drawn.height;
        drawn.add(members, GAP / 2, HEIGHT);
        drawn.width = width;
        drawn.height = height;
        drawn
    }

    fn add(&mut self, other: Self, x: usize, y: usize) {
        let moved = |found: GoalBox| GoalBox { x: found.x + x, y: found.y + y, ..found };
        self.boxes.extend(other.boxes.into_iter().map(moved));
        self.edges.extend(other.edges);
        self.ways_back.extend(other.ways_back);
    }
}

/// Returns the last and the first member of a loop; `None` for a goal that is no loop.
fn way_back(graph: &GoalGraph<'_>, goal: usize) -> Option<(usize, usize)> {
    let is_loop = matches!(graph.goal(goal)?.form, GoalForm::Loop { .. });
    let members = graph.members(goal);
    let last = members.last().filter(|_| is_loop)?;
    Some((*last, *members.first()?))
}

/// Arranges the goals of a list in layers, each goal beneath the goals that it depends on. Adds the
/// dependencies as edges.
fn layers_of(
    graph: &GoalGraph<'_>,
    list: &[usize],
    edges: &mut Vec<(usize, usize)>,
) -> Vec<Vec<usize>> {
    let mut layer_of: HashMap<usize, usize> = HashMap::new();
    let mut layers: Vec<Vec<usize>> = Vec::new();
    for goal in graph.order().iter().filter(|goal| list.contains(goal)) {
        let needs = graph.direct_needs(*goal);
        let needs: Vec<_> = needs.into_iter().filter(|need| list.contains(need)).collect();
        let layer = needs.iter().filter_map(|need| layer_of.get(need)).max();
        let layer = layer.map_or(0, |layer| layer + 1);
        edges.extend(needs.into_iter().map(|need| (need, *goal)));
        layer_of.insert(*goal, layer);
        if layers.len() <= layer {
            layers.resize_with(layer + 1, Vec::new);
        }
        if let Some(layer) = layers.get_mut(layer) {
            layer.push(*goal);
        }
    }
    layers
}
