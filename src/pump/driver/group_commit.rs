//! Group commit: collects all events that are ready, and writes the records of their steps with one
//! commit. Effects are performed only after the commit.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::failed_attempts::warn_of_failed_attempts;
use super::refused_payloads::warn_of_payloads_refused_by_core;
use super::{Pump, PumpCommand, WriteObstacle};
use crate::bus::Delivery;
use crate::clock::{Time, since_boot};
use crate::envelope::RefusalRule;
use crate::ids::{Digest, Position};
use crate::journal::{Error, Journal};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::core::{Effect, Event, Step};

/// Interval between attempts to write while the disk is full or the journal's server is
/// unreachable.
pub(super) const ROOM_RETRY: Duration = Duration::from_millis(500);

impl Pump {
    /// Waits for a command and takes all commands that are ready, up to the maximum number for one
    /// commit.
    pub(super) fn collect_batch(&mut self, batch: &mut Vec<PumpCommand>) {
        let deadline = self.core.next_deadline().map(|(at, _)| at);
        let next = [deadline, self.alarms.next()].into_iter().flatten().min();
        let busy = self.busy.wait(Instant::now()).unwrap_or(Duration::MAX);
        let rest = self.journal.rest().min(busy);
        let patience = next.map_or(rest, |at| self.clock.wait_until(at)).min(rest);
        let next_up = self.waiters.take_deferred().map_or_else(|| self.inbox.try_recv(), Ok);
        let first = match next_up {
            Ok(command) => Ok(command),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => self.inbox.recv_timeout(patience),
        };

        match first {
            Ok(PumpCommand::Reload(reload)) => self.reload = Some(reload),
            Ok(command) => batch.push(command),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => batch.push(PumpCommand::Stop),
        }

        while batch.len() < limits::GROUP_COMMIT_MAX && self.reload.is_none() {
            let command = self.waiters.take_deferred().or_else(|| self.inbox.try_recv().ok());
            match command {
                Some(PumpCommand::Reload(reload)) => self.reload = Some(reload),
                Some(command) => batch.push(command),
                None => break,
            }
        }

        if self.alarms.has_grown() {
            self.alarms.remove_ended(
                |call| self.core.has_timers(call),
                |call| self.core.state().calls.contains_key(&call),
            );
        }

        let now = self.clock.now();
        let due = self.alarms.due(now, self.core.is_full());
        batch.extend(due.into_iter().map(|alarm| PumpCommand::Event(Event::Alarm(alarm))));
        let counts = self.busy.take_due((Instant::now(), now));
        batch.extend(counts.into_iter().map(|busy| PumpCommand::Event(Event::Busy(busy))));
        self.queue_deadlines(now);
    }

    /// Puts a check of passed deadlines into the inbox, behind all commands that are already there.
    /// So the pump first processes the answers in the inbox. An answer that arrived before the
    /// deadline of its attempt counts, even if this deadline has passed in the meantime.
    pub(super) fn queue_deadlines(&mut self, now: Time) {
        let has_passed = self.core.next_deadline().is_some_and(|(at, _)| at <= now);
        if has_passed && !self.is_deadline_queued {
            self.is_deadline_queued = self.handle.outbox().send(PumpCommand::Deadlines).is_ok();
        }
    }

    /// Makes the steps durable, then performs their effects in order. A durable record may become
    /// readable in the journal a little later. Deliveries to hosts that read the journal are sent
    /// only when the records are readable.
    pub(super) fn commit(&mut self, steps: Vec<Step>) -> Result<(), Error> {
        let mut records = Vec::with_capacity(steps.len());
        let mut effects = Vec::new();
        for mut step in steps {
            effects.append(&mut step.effects);
            records.extend(step.into_record());
        }

        if mutant("deliver-before-durable") {
            self.perform_all(std::mem::take(&mut effects))?;
        }

        if !records.is_empty() {
            self.keep_inputs()?;
            // Read before the first attempt. A repeated attempt may find the records of an earlier
            // one, so its success proves nothing about the time in between.
            let requested_at = since_boot();
            self.persist(|journal| journal.write(&mut records).map(drop))?;
            self.proof.record_acknowledgement(requested_at);
            self.metrics.record_written(&records, self.core.state());
            // Ordering rule: the effects of a time-out make the metrics forget the attempt.
            // In a test case, whose clock is frozen, failures are part of the case.
            if !self.clock.is_frozen() {
                warn_of_failed_attempts(&records, &self.metrics, &mut self.logged_reasons);
                warn_of_payloads_refused_by_core(&records, &self.gate);
            }
            let early = |effect: &mut Effect| self.is_early(effect);
            let early: Vec<_> = effects.extract_if(.., early).collect();
            self.perform_all(early)?;
            self.persist(|journal| journal.show(&records))?;
            self.recorded.send_replace(Position(self.journal.next().0.saturating_sub(1)));
            self.metrics.count_records(&records);
        }

        self.perform_all(effects)?;
        self.end_model_waits();
        Ok(())
    }

    /// Reports to clients and live readers the end of the model calls whose attempts have ended.
    /// This is needed because the host of an agent reports no end if it was killed.
    fn end_model_waits(&mut self) {
        for (call, attempt) in self.metrics.take_ended() {
            self.waiters.watchers.attempt_ended(call, attempt);
            self.handle.live().attempt_ended(call, attempt);
        }
    }

    /// Stores the inputs of the model calls in this batch, such as system prompts. Must be called
    /// before the records that refer to these inputs are written.
    fn keep_inputs(&mut self) -> Result<(), Error> {
        for inputs in std::mem::take(&mut self.inputs) {
            let digest = Digest::of(inputs.as_bytes());
            if self.kept.contains(&digest) {
                continue;
            }
            self.persist(|journal| journal.put_blob(inputs.as_bytes()).map(drop))?;
            if self.kept.len() >= limits::INPUTS_REMEMBERED_MAX {
                self.kept.clear();
            }
            self.kept.insert(digest);
        }

        Ok(())
    }

    fn is_early(&self, effect: &Effect) -> bool {
        let (Effect::Deliver(Delivery { listener, .. }) | Effect::Withdraw { listener, .. }) =
            effect
        else {
            return false;
        };
        self.hosts.get(listener).is_some_and(|host| !host.reads_journal())
    }

    /// Runs the operation `attempt` on the journal. While the disk is full or the journal's server
    /// is unreachable, repeats the operation until it succeeds or the pump is stopped. Waiting is
    /// safe, because no effect of a record is performed before the record is durable.
    pub(super) fn persist(
        &mut self,
        mut attempt: impl FnMut(&mut dyn Journal) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let since = Instant::now();
        // The reason that was logged last; `None` before the first wait.
        let mut logged = None;
        loop {
            match attempt(&mut *self.journal) {
                Ok(()) => break,
                Err(error) if error.is_passing() && !self.waiters.is_stopping() => {
                    let reason = error.to_string();
                    if logged.as_ref() != Some(&reason) {
                        tracing::error!(
                            "submissions are refused until the journal accepts records again: \
                             {reason}"
                        );
                        logged = Some(reason);
                    }
                    self.metrics.counts().set_obstacle(Some(&error));
                    self.wait_out(WriteObstacle::of(&error))?;
                }
                Err(error) => return Err(error),
            }
        }

        if logged.is_some() {
            let seconds = since.elapsed().as_secs();
            tracing::warn!("the journal accepts records again, after {seconds} s");
            self.metrics.counts().set_obstacle(None);
            self.clock.was_kept(since);
        }

        Ok(())
    }

    /// Waits until the journal may accept records again. Meanwhile answers the commands that
    /// arrive.
    fn wait_out(&mut self, obstacle: WriteObstacle) -> Result<(), Error> {
        let until = Instant::now() + ROOM_RETRY;
        while !self.waiters.is_stopping() {
            let left = until.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(command) => self.take_while_waiting(command, obstacle)?,
                Err(_) => break,
            }
        }

        Ok(())
    }

    /// Handles a command that arrives while the journal accepts no records. Refuses submissions,
    /// reloads and the requests of persons, because their senders are waiting for the result.
    /// Answers or refuses most queries. Keeps all other commands, such as the answers of listeners,
    /// in their order.
    fn take_while_waiting(
        &mut self,
        command: PumpCommand,
        obstacle: WriteObstacle,
    ) -> Result<(), Error> {
        match command {
            PumpCommand::Submit(submit) if !mutant("take-while-full") => {
                let client = submit.submission.client.clone();
                if submit.refuse(obstacle) == RefusalRule::Busy {
                    self.busy.count(&client, Instant::now());
                }
            }
            PumpCommand::Operate(request) => {
                if let Some(request) = request.refuse(obstacle) {
                    self.waiters.defer(PumpCommand::Operate(Box::new(request)));
                }
            }
            PumpCommand::Reload(reload) => reload.refuse(obstacle),
            PumpCommand::Query(query, permit) => {
                if let Some(query) = self.answer_while_waiting(*query, obstacle)? {
                    self.waiters.defer(PumpCommand::Query(Box::new(query), permit));
                }
            }
            PumpCommand::Stop => self.waiters.stop(),
            command => self.waiters.defer(command),
        }

        Ok(())
    }
}
