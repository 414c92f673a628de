//! Workflows: listeners whose behaviour a definition determines.
//!
//! A run is a pure function of its definition and the messages of its call. This module must not
//! know the pump: a workflow is a listener like any other. `docs/WORKFLOWS.md` describes
//! definitions.

/// Schema of the payloads that a workflow writes in its own thread.
pub const SCHEMA: &str = include_str!("../../schemas/workflow.xsd");

mod begun_run;
mod call_fold;
mod calls_beneath;
mod check;
mod compile;
mod definition;
mod definition_diff;
mod delegation;
mod document;
mod drawing;
mod dry_run;
mod expression;
mod expression_literals;
mod forked_run;
mod function_arguments;
mod graph;
mod handler;
mod input;
mod live_calls;
mod mapping;
mod nested_runs;
mod payloads;
mod questions;
mod read_compiled;
mod repeated_calls;
mod retry_rules;
mod run_clock;
mod run_definition;
mod run_retry;
mod run_size;
mod run_state;
mod run_tree;
mod run_watch;
mod shapes;
mod single_braces;
mod template;
mod typed_outputs;
mod undo;
mod undo_plan;
mod value_shape;
mod verdicts;
mod view;

pub use call_fold::UndoSource;
pub use calls_beneath::{CallEnd, HandedOverAttempts, NestedCall, calls_beneath};
pub use check::{
    DefinitionContext, DefinitionFault, DefinitionProblem, check, check_undo_rule,
    listeners_beneath, mapping_notes,
};
pub use compile::{CompiledWorkflow, compile, peers_of, peers_of_goal};
#[cfg(test)]
pub use definition::examples as definition_examples;
pub use definition::{
    AskForm, ChooseBranch, DelegatedRoles, EachItem, FailurePolicy, GoalCondition, GoalDefinition,
    GoalForm, GoalId, GoalOutput, GoalTarget, ItemFailure, ItemVerification, LoopEnd, Mapping,
    PlaceId, Placed, Supervision, WorkflowDefinition, WorkflowInput, WorkflowOutput,
};
pub use definition_diff::{
    DefinedCall, DefinitionChange, changes as definition_changes, defined_calls,
};
pub use delegation::{delegate_schemas, delegations};
pub use document::{ContextEntry, GoalDocument, IterationEntry, LoopPass, TaskDocument};
pub use drawing::{mermaid, text as drawing};
pub use dry_run::{DryRunDocument, dry_run};
pub use graph::GoalGraph;
pub use handler::WorkflowHandler;
pub use input::{InputError, fit_children, input_payload, with_stand_ins};
pub use nested_runs::nesting_note;
pub use payloads::{failed_name, input_name, output_name, run_schema, schema as generated_schema};
pub use questions::{
    is_undo_report, question_name, questions as workflow_questions, schema as question_schema,
};
pub use read_compiled::{CompiledFormError, read_compiled};
pub use repeated_calls::{RepeatedCalls, repeated_calls};
pub use retry_rules::called_once;
pub use run_definition::{
    IdentifiedDefinition, RetryRecord, RunDefinitions, RunRules, latest_run, recorded_definition,
    redacted_definition, run_rules_of, write_run_definition,
};
pub use run_retry::{RunArchive, RunRetry};
pub use run_size::{exceeded_limits, missing_undo_room};
pub use run_state::{
    GoalCall, GoalFailure, GoalPhase, GoalRun, RunEvent, RunKind, RunLimits, RunOutput, RunPart,
    RunStep, WorkflowRun,
};
pub use run_tree::{ActivityKind, RowKind, RunActivity, RunRow, RunTree};
pub use run_watch::{GoalStatus, RunWatch};
pub use shapes::labels as agent_labels;
pub use single_braces::single_braces;
pub use typed_outputs::{generated_answer, goal_schema, has_judge, has_verdicts, typed_answers};
pub use undo::{LeftCall, RunUndo, UndoRules, UndoStep, UndoTarget, undone_call};
pub use undo_plan::{PlannedUndo, planned_undo};
pub use verdicts::{judgement_name, verdict_name, verdict_schema};
pub use view::{ViewEntry, ViewValue};
