//! The gate of a small organism: its members and their vocabularies.

use std::path::Path;
use std::sync::Arc;

use organism::contract::{Contract, Contracts, Role};
use organism::envelope::Refusal;
use organism::ids::{ListenerName, PayloadName};
use organism::pump::gate::{Checked, Gate};
use organism::schema::Schemas;

pub const CALC: &str = "urn:org:calc:v1";
pub const CLIENT_NAMESPACE: &str = "urn:org:desk:v1";

pub fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

pub fn data(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn contract(who: &str, role: Role, accepts: &[&str], replies: &[&str], peers: &[&str]) -> Contract {
    let names = |list: &[&str]| list.iter().map(|n| PayloadName::parse(n).unwrap()).collect();
    let mut contract = Contract::new(name(who), role);
    contract.accepts = names(accepts);
    contract.replies = names(replies);
    contract.peers = peers.iter().map(|peer| name(peer)).collect();
    contract
}

/// Returns the contracts of the members: `desk` is an agent that may call `calc`, `client` may call
/// `desk` and `calc`, and no member may call `vault`.
pub fn contracts() -> Contracts {
    let add = format!("{{{CALC}}}add");
    let sum = format!("{{{CALC}}}sum");
    let ask = format!("{{{CLIENT_NAMESPACE}}}ask");
    let answer = format!("{{{CLIENT_NAMESPACE}}}answer");
    Contracts::new(vec![
        contract("calc", Role::Listener, &[&add], &[&sum], &[]),
        contract("desk", Role::Agent, &[&ask], &[&answer], &["calc"]),
        contract("vault", Role::Listener, &["{urn:org:vault:v1}open"], &[], &[]),
        contract("client", Role::Client, &[], &[], &["calc", "desk"]),
    ])
    .unwrap()
}

pub fn gate() -> Gate {
    let mut schemas = Schemas::default();
    for file in ["attacks/calc.xsd", "gate/desk.xsd"] {
        schemas.add_file(&data(file)).unwrap();
    }
    schemas.add_builtin("core.xsd", organism::system::SCHEMA).unwrap();
    Gate::new(Arc::new(contracts()), schemas)
}

pub fn check(sender: &str, text: &str) -> Result<Checked, Refusal> {
    gate().check(&name(sender), text.as_bytes())
}
