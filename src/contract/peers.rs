//! The peers that a sender may call. They are exactly the listeners that the config declares as
//! peers of this sender.

use super::{Contract, Meaning, NameMap, Role};
use crate::ids::PayloadName;

/// Adds the payload names of the declared peers to the vocabulary of `sender`. If `sender`
/// addresses any other listener, the pump refuses the payload as if that listener did not exist.
pub(super) fn add_peers(
    names: &mut NameMap<PayloadName, Meaning>,
    sender: &Contract,
    callable: &[&Contract],
) {
    for peer in callable.iter().filter(|c| sender.peers.contains(&c.name)) {
        if peer.name == sender.name && sender.role == Role::Agent {
            continue;
        }

        for name in &peer.accepts {
            add_peer(names, sender, peer, name);
        }
        for name in peer.goal_from(sender).into_iter().chain(peer.retry_from(sender)) {
            add_peer(names, sender, peer, &name);
        }
        for question in peer.questions_from(sender) {
            add_peer(names, sender, peer, question);
        }
    }
}

fn add_peer(
    names: &mut NameMap<PayloadName, Meaning>,
    sender: &Contract,
    peer: &Contract,
    name: &PayloadName,
) {
    match names.get_mut(name) {
        Some(Meaning::Call { peers, .. }) => peers.push(peer.name.clone()),
        // An agent's own name keeps its meaning if a peer accepts the same name.
        Some(_) => {}
        None => {
            let peers = vec![peer.name.clone()];
            let call = Meaning::Call { peers, gather: sender.gather, forward: false };
            names.insert(name.clone(), call);
        }
    }
}
