//! Place of a particle in the content model of an element: how often the particle may occur, and
//! the choice to which the particle belongs.

use super::describe::PayloadParameter;
use super::model::{ContentParticle, ParticleTerm, SchemaModel};

/// The branch of a choice to which an alternative belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChoiceBranch {
    /// Number of the choice among the choices of its element, from 0.
    pub choice: usize,
    /// Number of the branch. Alternatives of one choice with the same number belong to the same
    /// branch.
    pub branch: usize,
    /// Whether the element must contain an alternative of the choice.
    pub is_choice_required: bool,
    /// Whether an element that uses this branch must contain this alternative.
    pub is_needed: bool,
    /// Whether the element may contain several alternatives of the choice.
    pub is_choice_repeated: bool,
}

/// Occurrence of a particle in its content model: required, repeated, or one of several
/// alternatives.
#[derive(Clone, Copy)]
pub struct ParticlePlace {
    pub required: bool,
    pub repeated: bool,
    pub alternative: bool,
    /// Whether the particle belongs to a repeated group of several elements.
    pub interleaved: bool,
    pub choice: Option<ChoiceBranch>,
    /// Number of the named groups of its element in which the particle stands, one in another.
    pub groups: usize,
    /// Whether the particle is the only content of its branch of `choice`.
    is_whole_branch: bool,
}

impl ParticlePlace {
    /// The place of the whole content of an element.
    pub const ROOT: Self = Self {
        required: true,
        repeated: false,
        alternative: false,
        interleaved: false,
        choice: None,
        groups: 0,
        is_whole_branch: false,
    };

    /// Returns the place of `particle`, which is one of `count` particles that together stand at
    /// this place.
    pub fn of_particle(
        self,
        model: &SchemaModel,
        particle: &ContentParticle,
        count: usize,
    ) -> Self {
        let is_required = particle.min > 0;
        let in_branch =
            |own: ChoiceBranch| ChoiceBranch { is_needed: own.is_needed && is_required, ..own };
        Self {
            required: self.required && is_required,
            repeated: self.repeated || particle.is_repeated(),
            interleaved: self.interleaved || model.repeats_several(particle),
            choice: self.choice.map(in_branch),
            groups: self.groups + usize::from(matches!(particle.term, ParticleTerm::GroupRef(_))),
            is_whole_branch: self.is_whole_branch && count == 1,
            ..self
        }
    }

    /// Returns the place of the branches of a choice that stands at this place. `out` contains the
    /// parameters of the element that come before the choice. If the choice is a whole branch of an
    /// outer choice, the inner branches become branches of the outer choice.
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

    /// Returns the place of the next branch of a choice. `out` contains the parameters of the
    /// element that come before this branch. If this place is outside of a choice, or only a part
    /// of a branch, returns this place unchanged.
    pub fn next_branch(self, out: &[PayloadParameter]) -> Self {
        let next = |own| ChoiceBranch { branch: out.len(), ..own };
        let choice = if self.is_whole_branch { self.choice.map(next) } else { self.choice };
        Self { choice, ..self }
    }
}
