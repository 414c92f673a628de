use organism::listener::{TypedPayload, Request, serve};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Add { n: Vec<i64> }
impl TypedPayload for Add {
    const NAMESPACE: &'static str = "urn:example:calculator";
    const NAME: &'static str = "add";
}

#[derive(Serialize, Deserialize)]
struct Sum { #[serde(rename = "$text")] total: i64 }
impl TypedPayload for Sum {
    const NAMESPACE: &'static str = "urn:example:calculator";
    const NAME: &'static str = "sum";
}

fn main() -> std::process::ExitCode {
    serve(|add: Add, _: &Request| Ok::<_, String>(Sum { total: add.n.iter().sum() }))
}
