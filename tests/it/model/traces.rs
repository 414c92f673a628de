//! A request to a provider contains the trace of its call.

use std::collections::BTreeMap;

use super::recorded::{answer, house, run};
use super::server::{Script, Server};
use super::wires::OPENAI;

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test(flavor = "multi_thread")]
async fn a_model_call_carries_the_trace_as_a_header_and_none_without_one() {
    let server = Server::answering(Script::stream(&(OPENAI.events)(&answer("hello")))).await;
    let house = house(&format!(
        "[models.live]\nprovider = \"openai\"\nmodel = \"m-1\"\nbase_url = \"{}\"\n\
         api_key_env = \"LIVE_KEY\"\n",
        server.url()
    ));
    let variables = BTreeMap::from([("LIVE_KEY".to_owned(), "sk-live-0123456789".to_owned())]);
    for arguments in [&["send", "write.xml", "--traceparent", GIVEN][..], &["send", "write.xml"]] {
        let sent = run(house.command(arguments), &variables);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let header = |request: &str| {
        let (head, _) = request.split_once("\r\n\r\n").unwrap();
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(name, _)| *name == "traceparent")
            .map(|(_, value)| value.to_owned())
    };
    let told = header(&requests[0]).expect("it is told");
    assert!(told.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{told}");
    assert!(told.ends_with("-01") && told != GIVEN, "{told}");
    assert_eq!(header(&requests[1]), None);
}
