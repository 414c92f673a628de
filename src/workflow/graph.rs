//! The order of goals: which goal depends on which, directly and indirectly.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::definition::{
    FailurePolicy, GoalDefinition, GoalForm, GoalId, Placed, WorkflowDefinition,
};

/// Goals of a workflow with their dependencies. Goals are numbered in the order of the file.
pub struct GoalGraph<'a> {
    definition: &'a WorkflowDefinition,
    index: Arc<GoalIndex>,
}

/// An index of a workflow's goals: their numbers by id, their memberships, and their order. The
/// index is kept between the deliveries of a run, because computing it takes long for a definition
/// with thousands of goals.
#[derive(Debug, Clone)]
pub struct GoalIndex {
    numbers: HashMap<GoalId, usize>,
    memberships: Vec<Option<Membership>>,
    order: Vec<usize>,
}

/// The membership of a goal in a list of another goal, the owner. The member runs only as a part of
/// the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Number of the goal to which the list belongs.
    pub owner: usize,
    pub kind: MemberKind,
}

/// The kind of the list that contains a member, with the member's position in this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    Loop {
        position: usize,
    },
    Branch {
        branch: usize,
        position: usize,
    },
    /// The member judges the output of each item of the owner, a goal that runs once for each item.
    Verify,
    /// The member is the fallback of the owner: it runs in place of the owner after the owner has
    /// failed.
    Fallback,
}

/// A reference to a goal that another list already names. This is a problem, because a goal may be
/// in only one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondMembership<'a> {
    pub goal: &'a Placed<GoalId>,
    pub first_owner: &'a GoalId,
}

impl<'a> GoalGraph<'a> {
    /// Creates the graph of a definition. Also returns an entry for each goal that two lists name.
    pub fn new(definition: &'a WorkflowDefinition) -> (Self, Vec<SecondMembership<'a>>) {
        let mut numbers = HashMap::new();
        for (number, goal) in definition.goals.iter().enumerate() {
            numbers.entry(goal.id.value.clone()).or_insert(number);
        }

        let (memberships, second) = memberships(definition, &numbers);
        let unordered = Arc::new(GoalIndex { numbers, memberships, order: Vec::new() });
        let graph = Self { definition, index: unordered };
        let order = graph.ordered();
        let index = Arc::new(GoalIndex { order, ..Arc::unwrap_or_clone(graph.index) });

        (Self { definition, index }, second)
    }

    /// Creates the graph of a definition with the index of an earlier graph of the same definition,
    /// so that the index is not computed again.
    pub fn indexed(definition: &'a WorkflowDefinition, index: Arc<GoalIndex>) -> Self {
        Self { definition, index }
    }

    /// Returns the index of the goals. Further graphs of the same definition can use it.
    pub fn index(&self) -> Arc<GoalIndex> {
        Arc::clone(&self.index)
    }

    /// Returns the goal whose output a run returns if the definition has no key `output`: the last
    /// goal that has an output and is no verifier.
    pub fn last_output(&self) -> Option<usize> {
        (0..self.len()).rev().find(|number| {
            let membership = self.membership(*number);
            let is_verifier = membership.is_some_and(|own| own.kind == MemberKind::Verify);
            !is_verifier && self.goal(*number).is_some_and(|goal| goal.form.has_output())
        })
    }

    /// Returns the number of goals.
    pub fn len(&self) -> usize {
        self.index.memberships.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.memberships.is_empty()
    }

    pub fn number(&self, id: &GoalId) -> Option<usize> {
        self.index.numbers.get(id).copied()
    }

    pub fn goal(&self, number: usize) -> Option<&'a GoalDefinition> {
        self.definition.goals.get(number)
    }

    /// Returns the membership of a goal in a list that belongs to another goal, for example to a
    /// loop. Returns `None` if no list contains the goal.
    pub fn membership(&self, number: usize) -> Option<Membership> {
        self.index.memberships.get(number).copied().flatten()
    }

    /// Returns the outermost goal of which a goal is a member, directly or indirectly; the goal
    /// itself if it is a member of no other goal.
    pub fn outermost_owner(&self, number: usize) -> usize {
        let mut owner = number;
        let mut seen = 0;
        while let Some(membership) = self.membership(owner) {
            owner = membership.owner;
            seen += 1;
            // Lists that contain each other are a fault of the definition.
            if seen > self.len() {
                break;
            }
        }
        owner
    }

    /// Returns the members of a loop, or the members of all branches of a choice, in order.
    pub fn members(&self, number: usize) -> Vec<usize> {
        let named = self.goal(number).map(members_of).unwrap_or_default();
        let in_list = named.into_iter().filter(|(_, kind)| {
            matches!(kind, MemberKind::Loop { .. } | MemberKind::Branch { .. })
        });
        in_list.filter_map(|(id, _)| self.number(&id.value)).collect()
    }

    /// Returns the verifier of the given goal, which judges the goal's items; `None` if the goal
    /// has no verifier.
    pub fn verifier(&self, number: usize) -> Option<usize> {
        self.owned(number, MemberKind::Verify)
    }

    /// Returns the fallback of the given goal, which runs in place of the goal after a failure;
    /// `None` if the goal has no fallback.
    pub fn fallback(&self, number: usize) -> Option<usize> {
        self.owned(number, MemberKind::Fallback)
    }

    fn owned(&self, number: usize, wanted: MemberKind) -> Option<usize> {
        let named = members_of(self.goal(number)?);
        let (id, _) = named.into_iter().find(|(_, kind)| *kind == wanted)?;
        self.number(&id.value)
    }

    /// Returns the innermost loop that a goal runs in, directly or within a branch or a fallback.
    /// Returns `None` for a goal outside of all loops.
    pub fn loop_of(&self, number: usize) -> Option<usize> {
        let mut seen = HashSet::new();
        let mut at = number;
        while seen.insert(at) {
            let membership = self.membership(at)?;
            if matches!(membership.kind, MemberKind::Loop { .. }) {
                return Some(membership.owner);
            }
            at = membership.owner;
        }
        None
    }

    /// Returns every goal that runs in the given loop or choice, at any depth: members, and their
    /// fallbacks and verifiers. The result has the order of [`GoalGraph::order`].
    pub fn beneath(&self, number: usize) -> Vec<usize> {
        let mut found = HashSet::new();
        let mut pending = self.members(number);
        while let Some(next) = pending.pop() {
            if found.insert(next) {
                pending.extend(self.members(next));
                pending.extend(self.fallback(next));
                pending.extend(self.verifier(next));
            }
        }

        self.index.order.iter().copied().filter(|number| found.contains(number)).collect()
    }

    /// Returns all goals with their depths, as a tree shows them. Goals that are no members are in
    /// the order of the file, with the depth 0. Each goal is followed, one level deeper, by its
    /// members in the order of their lists, its verifier and its fallback.
    pub fn depth_first(&self) -> Vec<(usize, usize)> {
        let outermost = (0..self.len()).filter(|number| self.membership(*number).is_none());
        let mut pending: Vec<_> = outermost.map(|number| (number, 0)).rev().collect();
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        while let Some((number, depth)) = pending.pop() {
            if !seen.insert(number) {
                continue;
            }

            found.push((number, depth));
            let mut beneath = self.members(number);
            beneath.extend(self.verifier(number));
            beneath.extend(self.fallback(number));
            pending.extend(beneath.into_iter().rev().map(|member| (member, depth + 1)));
        }
        found
    }

    /// Returns all goals in an order that is the same in every run. Each goal comes after its
    /// dependencies and its members. Apart from this, the goals are in the order of the file.
    pub fn order(&self) -> &[usize] {
        &self.index.order
    }

    fn ordered(&self) -> Vec<usize> {
        let count = self.definition.goals.len();
        let mut waits_for: Vec<HashSet<usize>> =
            (0..count).map(|number| self.direct_needs(number).into_iter().collect()).collect();
        for number in 0..count {
            let Some(membership) = self.membership(number) else { continue };
            if let Some(owner) = waits_for.get_mut(membership.owner) {
                owner.insert(number);
            }
        }

        let mut order = Vec::new();
        let mut is_placed = vec![false; count];
        let mut left: Vec<usize> = (0..count).collect();
        while !left.is_empty() {
            let is_ready = |number: &usize| {
                let needs = waits_for.get(*number).into_iter().flatten();
                needs.copied().all(|need| is_placed.get(need).copied().unwrap_or_default())
            };
            // The check reports goals that wait for each other.
            let at = left.iter().position(is_ready).unwrap_or_default();
            let next = left.remove(at);
            if let Some(is_placed) = is_placed.get_mut(next) {
                *is_placed = true;
            }
            order.push(next);
        }
        order
    }

    /// Returns the goals that must have ended before a goal starts. If the goal has members, as a
    /// loop has, also returns the goals that these members name in their setting `needs`. Leaves
    /// out the goal itself and its members.
    pub fn direct_needs(&self, number: usize) -> Vec<usize> {
        let mut needs = self.own_needs(number);
        if let Some(membership) = self.membership(number) {
            needs.extend(self.needs_of_member(membership));
        }

        let own = self.lists_of(number);
        let outside = own.iter().flat_map(|member| self.named_needs(*member));
        for need in outside {
            if need != number && !own.contains(&need) && !needs.contains(&need) {
                needs.push(need);
            }
        }
        needs
    }

    /// Returns the goals that a goal's definition names as members, and the members of these goals,
    /// at any depth. For example, loops and choices have members.
    fn lists_of(&self, number: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut pending = vec![number];
        while let Some(next) = pending.pop() {
            let named = self.goal(next).map(members_of).unwrap_or_default();
            for member in named.into_iter().filter_map(|(id, _)| self.number(&id.value)) {
                if member != number && !found.contains(&member) {
                    found.push(member);
                    pending.push(member);
                }
            }
        }
        found.sort_unstable();
        found
    }

    fn named_needs(&self, number: usize) -> Vec<usize> {
        let named = self.goal(number).and_then(|goal| goal.needs.as_deref());
        self.numbers_of(named.unwrap_or_default())
    }

    fn numbers_of(&self, ids: &[Placed<GoalId>]) -> Vec<usize> {
        ids.iter().filter_map(|id| self.number(&id.value)).collect()
    }

    /// Returns the nearest goal that is above the goal `number` in the file and is no member of
    /// another goal; `None` if there is none.
    fn goal_above(&self, number: usize) -> Option<usize> {
        (0..number).rev().find(|above| self.membership(*above).is_none())
    }

    fn needs_of_member(&self, membership: Membership) -> Vec<usize> {
        let owner = membership.owner;
        let mut needs = self.direct_needs_within(owner);
        let Some(goal) = self.goal(owner) else { return needs };
        let list: &[Placed<GoalId>] = match (&goal.form, membership.kind) {
            (GoalForm::Loop { members, .. }, MemberKind::Loop { position }) => {
                members.get(..position).unwrap_or_default()
            }
            (GoalForm::Choose(branches), MemberKind::Branch { branch, position }) => {
                let run = branches.get(branch).map(|branch| branch.run.as_slice());
                run.and_then(|run| run.get(..position)).unwrap_or_default()
            }
            _ => &[],
        };
        needs.extend(self.numbers_of(list));
        needs
    }

    /// Returns the result of [`GoalGraph::direct_needs`]. If a faulty definition makes the goal, or
    /// a goal around it, a member of itself, returns an empty list, because `direct_needs` would
    /// never end.
    fn direct_needs_within(&self, number: usize) -> Vec<usize> {
        let mut owners = HashSet::new();
        let mut next = Some(number);
        while let Some(owner) = next {
            if !owners.insert(owner) {
                return Vec::new();
            }
            next = self.membership(owner).map(|membership| membership.owner);
        }

        self.direct_needs(number)
    }

    /// Returns the goals whose outputs a goal may use, in the order of the file: all direct and
    /// indirect dependencies of the goal, and the members and the fallbacks of these dependencies.
    pub fn visible(&self, number: usize) -> Vec<usize> {
        let mut found = HashSet::new();
        let mut pending = self.direct_needs(number);
        while let Some(next) = pending.pop() {
            if found.insert(next) {
                pending.extend(self.direct_needs(next));
                pending.extend(self.members(next));
                pending.extend(self.fallback(next));
            }
        }

        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable();
        found
    }

    /// Whether the setting `context` of `goal` lets the document of `goal` show the output of the
    /// goal `shown`. A loop or a choice in this setting stands for everything that runs in it.
    pub fn shows(&self, goal: &GoalDefinition, shown: usize) -> bool {
        let Some(named) = &goal.context else { return true };
        let mut named = named.iter().filter_map(|id| self.number(&id.value));
        named.any(|named| named == shown || self.beneath(named).contains(&shown))
    }

    /// Returns cycles of goals that wait for each other. Each goal in a cycle waits for the next
    /// one, and the last goal waits for the first. Does not return every cycle. But if the last
    /// goal of each returned cycle did not wait for the first one, no cycle would be left.
    pub fn cycles(&self) -> Vec<Vec<usize>> {
        let mut cycles = Vec::new();
        let mut ended = HashSet::new();
        for start in 0..self.definition.goals.len() {
            self.find_cycles(start, &mut Vec::new(), &mut ended, &mut cycles);
        }
        cycles
    }

    /// Follows every way from the goal `number` to the goals for which it waits, and adds the
    /// cycles that it finds to `cycles`. `path` are the goals through which the search has come to
    /// this goal. `ended` are the goals from which the search has already followed every way.
    fn find_cycles(
        &self,
        number: usize,
        path: &mut Vec<usize>,
        ended: &mut HashSet<usize>,
        cycles: &mut Vec<Vec<usize>>,
    ) {
        if let Some(at) = path.iter().position(|on_path| *on_path == number) {
            cycles.extend(path.get(at..).map(<[usize]>::to_vec));
            return;
        }
        if ended.contains(&number) {
            return;
        }

        path.push(number);
        let waits_for = self.own_needs(number).into_iter().chain(self.members(number));
        let waits_for = waits_for.chain(self.verifier(number)).chain(self.fallback(number));
        let waits_for: Vec<_> = waits_for.collect();
        for next in waits_for {
            self.find_cycles(next, path, ended, cycles);
        }
        path.pop();
        ended.insert(number);
    }

    /// Returns the goals that the goal itself needs, without the needs of the goal around it. If
    /// the goal has a setting `needs`, returns the goals in this setting. Otherwise, a member of
    /// another goal needs no goal. Any other goal needs the nearest goal that is above it in the
    /// file and is no member of another goal.
    fn own_needs(&self, number: usize) -> Vec<usize> {
        let Some(goal) = self.goal(number) else { return Vec::new() };
        match &goal.needs {
            Some(named) => self.numbers_of(named),
            None if self.membership(number).is_none() => {
                self.goal_above(number).into_iter().collect()
            }
            None => Vec::new(),
        }
    }
}

/// Returns, for each goal, its membership in a list, or `None` if it is in no list. Also returns an
/// entry for each goal that two lists name.
fn memberships<'a>(
    definition: &'a WorkflowDefinition,
    numbers: &HashMap<GoalId, usize>,
) -> (Vec<Option<Membership>>, Vec<SecondMembership<'a>>) {
    let mut memberships: Vec<Option<Membership>> = vec![None; definition.goals.len()];
    let mut second = Vec::new();

    for (owner, goal) in definition.goals.iter().enumerate() {
        for (named, kind) in members_of(goal) {
            let Some(number) = numbers.get(&named.value).copied() else { continue };
            let Some(place) = memberships.get_mut(number) else { continue };
            match place {
                Some(first) => {
                    let Some(first_owner) = definition.goals.get(first.owner) else { continue };
                    let first_owner = &first_owner.id.value;
                    second.push(SecondMembership { goal: named, first_owner });
                }
                None => *place = Some(Membership { owner, kind }),
            }
        }
    }

    (memberships, second)
}

/// Returns every goal that `goal` names as a member, with the kind of the membership. The kind also
/// contains the position of a member in a loop or branch.
fn members_of(goal: &GoalDefinition) -> Vec<(&Placed<GoalId>, MemberKind)> {
    let mut members = Vec::new();
    match &goal.form {
        GoalForm::Loop { members: list, .. } => {
            let list = list.iter().enumerate();
            members.extend(list.map(|(position, id)| (id, MemberKind::Loop { position })));
        }
        GoalForm::Choose(branches) => {
            for (branch, choice) in branches.iter().enumerate() {
                let list = choice.run.iter().enumerate();
                members.extend(
                    list.map(|(position, id)| (id, MemberKind::Branch { branch, position })),
                );
            }
        }
        GoalForm::Each(each) => {
            members.extend(each.verify.as_ref().map(|verify| (&verify.goal, MemberKind::Verify)));
        }
        _ => {}
    }

    if let Some(FailurePolicy::Goal(fallback)) = &goal.on_failure {
        members.push((fallback, MemberKind::Fallback));
    }

    members
}
