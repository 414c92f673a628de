//! Tests of the system prompt and of its statements, which must be true.

use std::sync::Arc;

use expect_test::expect;
use organism::agent::protocol::AgentVocabulary;
use organism::agent::system_prompt::prompt_sections::{CORE_EXAMPLES, core_example};
use organism::agent::{ActionTransport, AgentOptions, FinalFormat, ModelAgent, RendererVersion};
use organism::contract::{Contract, Contracts};
use organism::model::ModelTool;
use organism::system;

use super::setup::{delivery, options, payloads, question_thread, says, schemas, turn};
use super::story::name_of;

fn prompt() -> String {
    let (story, call) = question_thread();
    let mut options = options();
    options.sections = vec![
        ("communication".to_owned(), "Be brief.".to_owned()),
        ("identity".to_owned(), "You are a code assistant.".to_owned()),
    ];
    let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
    agent.rendered(&delivery(&story, call)).unwrap().system
}

#[test]
fn the_prompt_requests_a_markdown_final() {
    let (story, call) = question_thread();
    let options = AgentOptions { final_format: FinalFormat::Markdown, ..options() };
    let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
    let prompt = agent.rendered(&delivery(&story, call)).unwrap().system;
    assert!(prompt.contains("the asker needs to know, in markdown:\n<answer>"), "{prompt}");
}

// T1 T9
#[test]
fn the_prompt_has_its_sections_in_order_and_the_tools_from_their_schemas() {
    expect![[r#"
        <identity>
        You are a code assistant.
        </identity>

        <capabilities>
        You reason, and you use the tools that <tool_calling> describes.
        </capabilities>

        <rules>
        - Reach the goal of the request by reasoning and by using the tools.
        - Say only what the results you were given support; where they do not, say so.
        </rules>

        <tool_calling>
        Your tools are answered by:
        - code: knows the code

        <search>: Searches code.
        Answered by: code
        Parameters:
        - query (text, required): What to look for.
        - path (text, optional)
        - allow_tests (true or false, optional)
        Example:
        <search>
          <query>query</query>
          <path>path</path>
          <allow_tests>true</allow_tests>
        </search>

        <extract>: Extracts code.
        Answered by: code
        Parameters:
        - file_path (text, required)
        - line (whole number from 1, optional)
        - end_line (whole number from 1, optional)
        Example:
        <extract>
          <file_path>file_path</file_path>
          <line>1</line>
          <end_line>1</end_line>
        </extract>

        <query>: Asks the index.
        Answered by: code
        Content: text
        Example:
        <query>query</query>
        </tool_calling>

        <response_protocol>
        You MUST think before every action: every response is your reasoning in <thinking>...</thinking>, then EXACTLY ONE action. You have at most 10 responses for a task.
        You MUST write every action as XML, the end of the task included. DO NOT respond with plain text: ONLY what stands in <answer> or <attempt_completion> reaches the asker.
        An action is one XML element: its root is the name of the action, its parameters are child elements, or attributes where the description says so. DO NOT write it in a code fence, in quotes or inside <thinking>; ALWAYS close it. Text around it is kept, but nothing is done with it.
        Values are text. Write them raw, as they are: code such as a && b < c, quotes and tags are not escaped. A value that is escaped throughout is unescaped once. DO NOT mix raw and escaped characters in one value. ONLY where a value itself holds text such as &amp; or its own closing tag, it MUST stand in <![CDATA[...]]>.

        When the task is complete, respond ONLY with this action, with everything the asker needs to know, in plain text:
        <answer>
          <text>text</text>
          <source>source</source>
        </answer>

        When the task is complete, respond ONLY with this action, with everything the asker needs to know, in plain text:
        <attempt_completion>
          <result>result</result>
        </attempt_completion>

        To go on working by yourself, write your own <question>: it is recorded in this thread and you are asked again.
        <question>
          <part>part</part>
        </question>

        The system itself understands these; notes are no actions and may precede one:
        - <spawn-thread> opens a child thread that works at the same time; its result comes back to you as <thread-result>.
          <spawn-thread suggested_sub_id="part-one"><initial-payload><question>
            <part>part</part>
          </question></initial-payload></spawn-thread>
          Optional: bound="true" (the child thread is cancelled when you end this task); tokens="5000" and money="0.50" (the most that its model calls may use); timeout="PT10M" (how long it may take).
        - <send-to-thread> sends another payload into a thread you spawned.
          <send-to-thread thread_id="sess-abcd1234.part-one"><question>
            <part>part</part>
          </question></send-to-thread>
        - <cancel-thread> ends a thread you spawned, with everything beneath it.
          <cancel-thread thread_id="sess-abcd1234.part-one"/>
        - <wait> ends your turn until all, or any, of your threads and timers are done.
          <wait for="all"/>
        - <set-timer> tells you when a time has come, with <timer-fired>.
          <set-timer after="PT30S" label="look again"/>
        - <cancel-timer> cancels a timer by the id you were given.
          <cancel-timer timer_id="0197f3a2-0000-7000-8000-000000000000"/>
        - <clear-context> keeps only your latest turns and messages in what you are shown; the record keeps everything.
          <clear-context keep="10"/>
        - <todo-until> a note: a checklist for you and for people who watch.
          <todo-until condition="every part is answered"><step done="true">look</step><step>answer</step></todo-until>
        - <progress> a note: how far you are.
          <progress>two of three parts are done</progress>
        - <thinking> a note: your reasoning, before every action.
          <thinking>I need the place where this is decided, so I search for it.</thinking>

        What comes back:
        - The result of a tool is <tool_result tool_name="NAME">...</tool_result>. In its text & is written &amp; and < is written &lt;, once. Several results stand in the order of your actions.
        - A result that begins with "Error:" is a failure, of the tool or of the way you called it: you MUST read what was wrong and what was expected, and correct it. DO NOT repeat the same action.
        - An action that is not accepted is answered the same way, at its place, and has no effect; so is every action beyond the number you may write.
        - <message from="..." to="..."> is a message of somebody in this thread.
        - <thread-spawned>, <thread-result>, <timer-set>, <timer-fired> and the like are written by the system alone; DO NOT write them yourself.
        - <notice> says where you stand: which turn it is, which tools there are, how to end.

        An example of the flow:
        You: <thinking>I need what search can tell me.</thinking>
        <search>
          <query>query</query>
          <path>path</path>
          <allow_tests>true</allow_tests>
        </search>
        Answer: <tool_result tool_name="search">...</tool_result>
        You: <thinking>That is all I need to answer.</thinking>
        <answer>
          <text>text</text>
          <source>source</source>
        </answer>
        </response_protocol>

        <environment>
        OS: linux
        Shell: bash
        Runtime: organism 0.1.0
        Date: 2026-11-20
        </environment>

        <communication>
        Be brief.
        </communication>"#]].assert_eq(&prompt());
}

// T9
#[test]
fn everything_that_is_taught_parses_and_passes_its_schema() {
    let options = options();
    let schemas = schemas();
    let lexicon = AgentVocabulary::new(&options.contract, &options.contracts, &options.schemas);
    let mut examples: Vec<(String, String)> = lexicon
        .iter()
        .filter(|word| &*word.name.namespace != system::NAMESPACE)
        .map(|word| (word.name.to_string(), word.example.clone()))
        .collect();
    for (local, _, template) in CORE_EXAMPLES {
        let name = system::name(local);
        assert!(lexicon.get(&name).is_some(), "{local} is in the vocabulary");
        let example = core_example(&lexicon, RendererVersion::CURRENT, template);
        examples.push((name.to_string(), example));
    }
    assert_eq!(examples.len(), 6 + CORE_EXAMPLES.len());
    for (name, example) in examples {
        let outcome = turn(&format!("<thinking>This is taught.</thinking>\n{example}"));
        let told = outcome.turn.as_ref().unwrap();
        assert_eq!((told.findings.len(), told.broken.len()), (0, 0), "{example}");
        let payloads = payloads(&outcome);
        let payload = payloads.iter().find(|p| name_of(p).to_string() == name).unwrap();
        schemas.validate(&name_of(payload), payload.as_bytes()).unwrap();
    }
}

/// Returns the system prompt and the names of the tools of an agent whose contract `change` has
/// changed.
fn taught_with(
    transport: ActionTransport,
    change: impl Fn(&mut Contract),
) -> (String, Vec<ModelTool>) {
    let mut options = AgentOptions { transport, ..options() };
    change(&mut options.contract);
    let mut all: Vec<Contract> = options.contracts.iter().cloned().collect();
    for contract in all.iter_mut().filter(|contract| contract.name == options.contract.name) {
        *contract = options.contract.clone();
    }
    options.contracts = Arc::new(Contracts::new(all).unwrap());
    let (story, call) = question_thread();
    let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
    let request = agent.rendered(&delivery(&story, call)).unwrap();
    (request.system, request.tools)
}

/// An agent that only runs goals has neither a peer nor a payload of its own, so it can send
/// nothing to a thread.
#[test]
fn threads_are_not_taught_where_no_payload_can_be_sent_to_them() {
    let without_payloads = |contract: &mut Contract| {
        contract.accepts.clear();
        contract.peers.clear();
    };
    let (prompt, _) = taught_with(ActionTransport::Xml, without_payloads);
    assert!(!prompt.contains("<spawn-thread") && !prompt.contains("<send-to-thread"), "{prompt}");
    assert!(prompt.contains("<set-timer"), "{prompt}");
    let (_, tools) = taught_with(ActionTransport::Native, without_payloads);
    let of_threads = tools.iter().filter(|tool| tool.name.ends_with("-thread"));
    assert_eq!(of_threads.count(), 0, "{tools:?}");
}

#[test]
fn an_amount_of_money_is_not_taught_where_a_model_has_no_price() {
    for has_unpriced_model in [false, true] {
        let change = |contract: &mut Contract| contract.has_unpriced_model = has_unpriced_model;
        let (prompt, _) = taught_with(ActionTransport::Xml, change);
        assert_eq!(prompt.contains("money="), !has_unpriced_model, "{prompt}");
        assert!(prompt.contains("tokens="), "{prompt}");
        let (_, tools) = taught_with(ActionTransport::Native, change);
        let spawn = tools.iter().find(|tool| tool.name == "spawn-thread").unwrap();
        let money = spawn.parameters.pointer("/properties/money");
        assert_eq!(money.is_some(), !has_unpriced_model, "{spawn:?}");
    }
}

#[test]
fn every_core_word_an_agent_may_write_has_an_example() {
    let taught: Vec<_> = CORE_EXAMPLES.iter().map(|(name, _, _)| *name).collect();
    for word in system::Primitive::WORDS.iter().chain(&system::NOTES) {
        assert!(taught.contains(word), "{word} is taught");
    }
}
