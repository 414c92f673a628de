//! Place of a particle in the content model of an element: how often it may occur, and the choice
//! that it belongs to.

use super::describe::PayloadParameter;
use super::model::ContentParticle;

/// The branch of a choice in which an alternative stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChoiceBranch {
    /// Number of the choice among the choices of its element, from 0.
    pub choice: usize,
    /// Number of the branch. Alternatives of one choice that have the same number stand together.
    pub branch: usize,
    /// Whether an element needs one of the alternatives.
    pub is_choice_required: bool,
    /// Whether an element that has this branch needs the alternative.
    pub is_needed: bool,
    /// Whether an element may have several of the alternatives.
    pub is_choice_repeated: bool,
}

/// Occurrence of a particle in its content model: required, repeated, or one of several
/// alternatives.
#[derive(Clone, Copy)]
pub struct ParticlePlace {
    pub required: bool,
    pub repeated: bool,
    pub alternative: bool,
    pub choice: Option<ChoiceBranch>,
    /// Whether the branch of `choice` contains nothing beside the particle.
    is_whole_branch: bool,
}

impl ParticlePlace {
    /// The place of the whole content of an element.
    pub const ROOT: Self = Self {
        required: true,
        repeated: false,
        alternative: false,
        choice: None,
        is_whole_branch: false,
    };

    /// Returns the place of a particle that stands here beside others, `count` particles in all.
    pub fn of_particle(self, particle: &ContentParticle, count: usize) -> Self {
        let is_required = particle.min > 0;
        let in_branch =
            |own: ChoiceBranch| ChoiceBranch { is_needed: own.is_needed && is_required, ..own };
        Self {
            required: self.required && is_required,
            repeated: self.repeated || particle.max.is_none_or(|max| max > 1),
            choice: self.choice.map(in_branch),
            is_whole_branch: self.is_whole_branch && count == 1,
            ..self
        }
    }

    /// Returns the place of the branches of a choice that stands here. `out` contains the
    /// parameters of the element that stand before it. If the choice is a whole branch of another
    /// choice, its branches are branches of the other choice.
    pub fn one_of(self, out: &[PayloadParameter]) -> Self {
        let choices = out.iter().filter_map(|parameter| parameter.choice);
        let next = choices.map(|own| own.choice + 1).max().unwrap_or(0);
        let is_choice_required = self.required;
        let new = ChoiceBranch {
            choice: next,
            branch: 0,
            is_choice_required,
            is_needed: true,
            is_choice_repeated: false,
        };
        let own = self.choice.unwrap_or(new);
        let is_choice_repeated = own.is_choice_repeated || self.repeated;
        Self {
            required: false,
            alternative: true,
            choice: Some(ChoiceBranch { is_choice_repeated, ..own }),
            is_whole_branch: self.choice.is_none() || self.is_whole_branch,
            ..self
        }
    }

    /// Returns the place of a branch that begins after the parameters in `out`. Outside of a
    /// choice, and in a part of a branch, returns the place unchanged.
    pub fn next_branch(self, out: &[PayloadParameter]) -> Self {
        let next = |own| ChoiceBranch { branch: out.len(), ..own };
        let choice = if self.is_whole_branch { self.choice.map(next) } else { self.choice };
        Self { choice, ..self }
    }
}
