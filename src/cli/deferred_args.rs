//! Arguments of a command that are declared only when the command line names the command.
//! Otherwise, each start of the program would declare the arguments of all commands: hundreds of
//! them.

use clap::builder::Resettable;
use clap::{ArgMatches, Command, Error, FromArgMatches};

/// The arguments `A` of a command. Clap declares them when it parses or describes this command.
#[derive(Debug)]
pub struct DeferredArgs<A>(pub A);

impl<A: FromArgMatches> FromArgMatches for DeferredArgs<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: clap::Args> clap::Args for DeferredArgs<A> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| with_own_texts(command, A::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| with_own_texts(command, A::augment_args_for_update))
    }
}

/// Declares arguments with `declare`, and keeps the command's own description. Without this
/// function, the description of a shared argument type would replace the description of the
/// command.
fn with_own_texts(command: Command, declare: fn(Command) -> Command) -> Command {
    let about = command.get_about().cloned();
    let long_about = command.get_long_about().cloned();
    declare(command).about(Resettable::from(about)).long_about(Resettable::from(long_about))
}
