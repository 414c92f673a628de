//! What a listener returned: its payloads, in order, each to where it belongs.

use super::desk::{Ghost, Running};
use super::step::Draft;
use super::{Core, Step};
use crate::contract::{Contract, Meaning};
use crate::envelope::{Broken, Disposition, Kind, Refusal, Rule, Spent, Turn};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::pump::gate::Checked;
use crate::system::{Answer, ErrorCode, Huh};
use crate::thread::{Fact, Input, Verdict};

/// A payload as the gate left it.
type Gated = Result<Checked, Refusal>;

/// The call an outcome belongs to, as every part of its processing needs it.
pub(super) struct Scene {
    pub call: CallId,
    pub listener: ListenerName,
    pub thread: ThreadId,
}

impl Core {
    pub(super) fn outcome(
        &mut self,
        step: &mut Step,
        call: CallId,
        attempt: Attempt,
        payloads: Vec<Gated>,
        turn: Option<Turn>,
    ) {
        if let Some(ghost) = self.desk.lay_to_rest(call, attempt) {
            return self.late_outcome(step, call, attempt, &ghost, payloads, turn);
        }
        let Some(open) = self.state.call(call) else { return };
        let scene = Scene { call, listener: open.callee.clone(), thread: open.thread.clone() };
        let Some(contract) = self.contracts.clone().get(&scene.listener).cloned() else { return };
        step.records(
            scene.thread.root(),
            Input::Outcome {
                listener: scene.listener.clone(),
                call,
                attempt,
                verdicts: payloads.iter().map(verdict).collect(),
                turn: turn.clone().map(without_note),
            },
        );
        let Some(running) = self.desk.finish(call, attempt, &contract) else {
            return self.stale_outcome(step, &scene, attempt, payloads);
        };
        self.hear(step, call, attempt, &running);
        match contract.is_agent() {
            true => self.agent_outcome(step, &scene, &contract, payloads, turn),
            false => self.listener_outcome(step, &scene, payloads),
        }
        self.wake(step, call);
    }

    /// What was delivered is handled: the outcome is on record.
    fn hear(&mut self, step: &mut Step, call: CallId, attempt: Attempt, running: &Running) {
        self.fact(step, Fact::Heard { call, attempt });
        for message in &running.delivered {
            self.dispose(step, *message, Disposition::Handled);
        }
    }

    /// A listener that is no agent: all of its outcome proceeds, or none.
    fn listener_outcome(&mut self, step: &mut Step, scene: &Scene, payloads: Vec<Gated>) {
        let refused = payloads.iter().filter_map(|p| p.as_ref().err()).cloned();
        let refused: Vec<_> = refused.collect();
        if !refused.is_empty() {
            for refusal in refused {
                self.refuse_in(step, scene, refusal);
            }
            let text = format!("{} gave an answer that cannot be used", scene.listener);
            return self.fail(step, scene.call, ErrorCode::ListenerFailed, &text);
        }
        let payloads: Vec<_> = payloads.into_iter().flatten().collect();
        if payloads.is_empty() {
            return self.acknowledge(step, scene.call);
        }
        let replies = payloads.iter().any(is_reply);
        for checked in &payloads {
            match is_reply(checked) {
                true => {}
                false if replies => self.call_beside_reply(step, scene, checked),
                false => self.act(step, scene, checked),
            }
        }
        self.reply(step, scene, payloads.into_iter().filter(is_reply).collect());
    }

    fn agent_outcome(
        &mut self,
        step: &mut Step,
        scene: &Scene,
        contract: &Contract,
        payloads: Vec<Gated>,
        turn: Option<Turn>,
    ) {
        let turn = turn.unwrap_or_default();
        self.model_turn(step, scene, &turn);
        let mut plan = Plan::new(contract.actions_per_turn, turn.spent, &payloads);
        let mut finals = Vec::new();
        for item in in_order(payloads, &turn.broken) {
            match item {
                Item::Broken(broken) => self.broken(step, scene, broken),
                Item::Gated(Err(refusal)) => self.refuse_with_huh(step, scene, refusal),
                Item::Gated(Ok(checked)) if *checked.meaning() == Meaning::Note => {
                    self.own_note(step, scene, &checked);
                }
                Item::Gated(Ok(checked)) => match plan.verdict(&checked) {
                    Planned::Final => finals.push(checked),
                    Planned::Act => self.act(step, scene, &checked),
                    Planned::Refuse(rule, text) => {
                        let refusal =
                            Refusal::new(rule, text, checked.payload().as_str().as_bytes());
                        self.refuse_with_huh(step, scene, refusal);
                    }
                },
            }
        }
        if let Some(huh) = Huh::about(&turn.findings) {
            self.tell(step, scene.call, None, &Answer::Huh(huh));
        }
        self.reply(step, scene, finals);
        if let Some(spent) = turn.spent {
            self.iterations_spent(step, scene.call, spent);
        }
    }

    /// The record of the model call itself, before what came of it.
    fn model_turn(&mut self, step: &mut Step, scene: &Scene, turn: &Turn) {
        if turn.note.is_empty() {
            return;
        }
        let answer = Answer::ModelTurn(turn.note.clone());
        let draft = Draft {
            kind: Kind::Note,
            from: &ListenerName::core(),
            to: &scene.listener,
            thread: &scene.thread,
            cause: Some(scene.call.0),
            call: Some(scene.call),
            name: answer.name(),
            payload: answer.payload(),
        };
        self.note(step, draft);
        let (tokens_in, tokens_out) = (turn.tokens_in, turn.tokens_out);
        self.fact(step, Fact::Used { call: scene.call, tokens_in, tokens_out });
        self.warn_of_budgets(step, scene);
    }

    fn own_note(&mut self, step: &mut Step, scene: &Scene, checked: &Checked) {
        let draft = Draft {
            kind: Kind::Note,
            from: &scene.listener,
            to: &scene.listener,
            thread: &scene.thread,
            cause: Some(scene.call.0),
            call: Some(scene.call),
            name: checked.name().clone(),
            payload: checked.payload().clone(),
        };
        self.note(step, draft);
    }

    fn broken(&mut self, step: &mut Step, scene: &Scene, broken: &Broken) {
        let finding = &broken.finding;
        let refusal =
            Refusal::new(Rule::MalformedAction, &finding.message, broken.attempt.as_bytes());
        let refusal = refusal.at(finding.place.clone());
        self.refuse_with_huh(step, scene, refusal);
    }

    fn call_beside_reply(&mut self, step: &mut Step, scene: &Scene, checked: &Checked) {
        let text = checked.payload().as_str().as_bytes();
        let refusal = Refusal::new(Rule::CallBesideReply, CALL_BESIDE_REPLY, text);
        self.refuse_in(step, scene, refusal);
    }

    pub(super) fn refuse_in(&mut self, step: &mut Step, scene: &Scene, refusal: Refusal) {
        self.refuse(step, &scene.listener, Some(&scene.thread), Some(scene.call), refusal);
    }

    /// On the record, and told to the agent.
    pub(super) fn refuse_with_huh(&mut self, step: &mut Step, scene: &Scene, refusal: Refusal) {
        let huh = Answer::Huh(Huh::of(&refusal));
        self.refuse_in(step, scene, refusal);
        self.tell(step, scene.call, None, &huh);
    }

    fn iterations_spent(&mut self, step: &mut Step, call: CallId, spent: Spent) {
        let text = match spent {
            Spent::NeverValid => "no turn held a valid action, and the last one is used up",
            Spent::AfterLastCall => "the last turn is used up after a call, without a final answer",
        };
        self.fail(step, call, ErrorCode::IterationsSpent, text);
    }

    /// The call already had its result: what came is recorded, for whoever reads the thread.
    fn late_outcome(
        &mut self,
        step: &mut Step,
        call: CallId,
        attempt: Attempt,
        ghost: &Ghost,
        payloads: Vec<Gated>,
        turn: Option<Turn>,
    ) {
        let listener = ghost.listener.clone();
        let verdicts = payloads.iter().map(verdict).collect();
        step.records(
            ghost.thread.root(),
            Input::Outcome {
                listener,
                call,
                attempt,
                verdicts,
                turn: turn.clone().map(without_note),
            },
        );
        if let Some(turn) = turn {
            let (listener, thread) = (ghost.listener.clone(), ghost.thread.clone());
            self.model_turn(step, &Scene { call, listener, thread }, &turn);
        }
        for payload in payloads {
            match payload {
                Err(refusal) => {
                    self.refuse(step, &ghost.listener, Some(&ghost.thread), Some(call), refusal);
                }
                Ok(checked) => {
                    let draft = Draft {
                        kind: Kind::Reply,
                        from: &ghost.listener,
                        to: &ghost.opener,
                        thread: &ghost.thread,
                        cause: Some(call.0),
                        call: ghost.opener_call,
                        name: checked.name().clone(),
                        payload: checked.payload().clone(),
                    };
                    self.record_late(step, draft);
                }
            }
        }
    }

    fn stale_outcome(
        &mut self,
        step: &mut Step,
        scene: &Scene,
        attempt: Attempt,
        payloads: Vec<Gated>,
    ) {
        for payload in payloads {
            let refusal = payload.map_or_else(
                |refusal| refusal,
                |checked| {
                    let text = checked.payload().as_str().as_bytes();
                    let message = format!("attempt {attempt} is no longer the current one");
                    Refusal::new(Rule::StaleAttempt, message, text)
                },
            );
            self.refuse_in(step, scene, refusal);
        }
    }
}

/// The input's copy of a turn: the note's text is a payload of the record and stands there.
fn without_note(turn: Turn) -> Turn {
    Turn { note: String::new(), ..turn }
}

const CALL_BESIDE_REPLY: &str = "an outcome that replies may not call: reply first, or call first";

fn is_reply(checked: &Checked) -> bool {
    *checked.meaning() == Meaning::Reply
}

pub(super) fn verdict(payload: &Gated) -> Verdict {
    match payload {
        Ok(checked) => Verdict::Passed(checked.payload().digest),
        Err(refusal) => Verdict::Refused(refusal.digest),
    }
}

enum Item<'a> {
    Gated(Gated),
    Broken(&'a Broken),
}

/// Payloads and broken actions in the order in which the model wrote them.
fn in_order(payloads: Vec<Gated>, broken: &[Broken]) -> Vec<Item<'_>> {
    let mut items: Vec<_> = payloads.into_iter().map(Item::Gated).collect();
    for one in broken {
        items.insert(one.index.min(items.len()), Item::Broken(one));
    }
    items
}

/// Which actions of a turn may go on: so many, and no call where one of them is final.
struct Plan {
    room: u32,
    has_final: bool,
    spent: Option<Spent>,
    taken: u32,
}

enum Planned {
    Act,
    Final,
    Refuse(Rule, &'static str),
}

impl Plan {
    fn new(room: u32, spent: Option<Spent>, payloads: &[Gated]) -> Self {
        let is_action = |checked: &&Checked| *checked.meaning() != Meaning::Note;
        let actions = payloads.iter().flatten().filter(is_action);
        let has_final = actions.take(room as usize).any(is_reply);
        Self { room, has_final, spent, taken: 0 }
    }

    fn verdict(&mut self, checked: &Checked) -> Planned {
        self.taken += 1;
        match is_reply(checked) {
            _ if self.taken > self.room => Planned::Refuse(
                Rule::ExcessAction,
                "one turn may hold only so many actions; write this one in a turn of its own",
            ),
            true => Planned::Final,
            false if self.has_final => Planned::Refuse(Rule::CallBesideReply, CALL_BESIDE_REPLY),
            false if self.spent.is_some() => {
                Planned::Refuse(Rule::BudgetSpent, "this was the last turn: only a final counts")
            }
            false => Planned::Act,
        }
    }
}
