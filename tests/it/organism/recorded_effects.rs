//! Effects of an organism in the tests: the deliveries that its listeners got, and the recorded
//! messages.

use organism::ids::{MessageId, Position, ThreadId};
use organism::thread::Fact;

use super::{House, Running};

impl House {
    /// Runs an organism whose listeners note their deliveries.
    pub fn run_noting(&self) -> Running {
        let mut command = self.command(&["run"]);
        command.env("EFFECTS", self.path("effects"));
        self.run_with(command)
    }

    /// Number of deliveries that the listeners have noted.
    pub fn effects(&self) -> usize {
        std::fs::read_to_string(self.path("effects")).unwrap_or_default().lines().count()
    }

    /// The messages with this local name, in the order of the record.
    pub fn messages(&self, local: &str) -> Vec<(MessageId, ThreadId)> {
        let reader = self.reader();
        let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        let named = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if &*message.name.local == local => {
                Some((message.id, message.thread.clone()))
            }
            _ => None,
        });
        named.collect()
    }

    /// All messages of a tree, each with its local name, in the order of the record.
    pub fn messages_of(&self, root: &str) -> Vec<(MessageId, String)> {
        let root = ThreadId::parse(root).unwrap();
        let records = self.reader().tree(&root, None).unwrap();
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        let accepted = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some((message.id, message.name.local.to_string())),
            _ => None,
        });
        accepted.collect()
    }

    /// The head of a tree, and the number of its records.
    pub fn extent(&self, root: &str) -> (Option<Position>, usize) {
        let reader = self.reader();
        let root = ThreadId::parse(root).unwrap();
        (reader.head(&root).unwrap(), reader.tree(&root, None).unwrap().len())
    }
}
