//! Finds the journal and the thread that an operator's signature must name, and signs requests.

use std::path::Path;

use uuid::Uuid;

use super::{ServiceClient, unexpected};
use crate::audit;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{Digest, ThreadId};
use crate::journal::partitions_in;
use crate::journal::sqlite::JournalReader;
use crate::service::signing::{OperatorSigner, SignaturePlace};
use crate::service::{DecisionRequest, Error, ServiceRequest, ServiceResponse, journal_in};
use crate::thread::Decision;

impl ServiceClient {
    /// Finds the journal and the thread that a signature of `request` must name. Returns `None` if
    /// operators do not sign requests of this kind. Also returns `None` if the thread or the held
    /// call is unknown; the pump refuses such a request anyway.
    pub async fn signature_place(
        &self,
        request: &ServiceRequest,
    ) -> Result<Option<SignaturePlace>, Error> {
        let thread = match request {
            ServiceRequest::Decide(decision) => self.held_thread(decision.message).await?,
            _ => request.signed_thread(),
        };
        let Some(thread) = thread else { return Ok(None) };

        let journal = self.signed_journal(request, &thread).await?;
        Ok(journal.map(|journal| SignaturePlace::now(journal, thread)))
    }

    /// Signs a request with `signer`. The request stays unsigned if there is no `signer`, or if
    /// [`ServiceRequest::signed_thread`] returns no thread.
    pub(super) async fn sign(
        &self,
        request: &mut ServiceRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<(), Error> {
        match request.signed_thread() {
            Some(thread) => self.sign_in_thread(request, &thread, signer).await,
            None => Ok(()),
        }
    }

    /// Signs a request about `thread` with `signer`. If `signer` is `None`, the request stays
    /// unsigned. If the thread is unknown, the request stays unsigned, too, because the pump
    /// refuses it anyway.
    pub(super) async fn sign_in_thread(
        &self,
        request: &mut ServiceRequest,
        thread: &ThreadId,
        signer: Option<&OperatorSigner>,
    ) -> Result<(), Error> {
        let Some(signer) = signer else { return Ok(()) };
        if let Some(journal) = self.signed_journal(request, thread).await? {
            signer.sign(request, journal, thread);
        }
        Ok(())
    }

    /// Returns the id of the journal that a signature of a request about `thread` must name.
    /// Returns `None` if this client does not know the number of partitions, and no journal in its
    /// data directory contains the thread.
    async fn signed_journal(
        &self,
        request: &ServiceRequest,
        thread: &ThreadId,
    ) -> Result<Option<Uuid>, Error> {
        match request {
            ServiceRequest::Pause(pause) => {
                self.journal_in_partition(pause.partition).await.map(Some)
            }
            ServiceRequest::Retry(retry) => {
                self.journal_in_partition(retry.partition).await.map(Some)
            }
            // Each partition has a thread of the organism.
            ServiceRequest::Decide(decision) if *thread == ThreadId::organism() => {
                let partition = decision.partition.unwrap_or_default();
                self.journal_in_partition(partition).await.map(Some)
            }
            ServiceRequest::FollowLive(live) => {
                self.any_journal_or_of(live.partition).await.map(Some)
            }
            _ => self.journal_of(thread).await,
        }
    }

    /// Returns the id of the journal of the partition to which `thread` belongs. If this client
    /// does not know the number of partitions, searches the journals in its data directory for one
    /// that contains the thread, and returns `None` if there is none.
    async fn journal_of(&self, thread: &ThreadId) -> Result<Option<Uuid>, Error> {
        if self.partitions().is_none() {
            let mut journals = partitions_in(&self.data).into_iter().map(|(_, journal)| journal);
            let journal = journals.find(|journal| has_thread(journal, thread));
            return journal.map(|journal| journal_in(&journal)).transpose();
        }

        self.journal_in_partition(self.partition_of(thread)).await.map(Some)
    }

    /// Returns the id of a journal for the signature of a subscription to the live channel. The
    /// signature may name any journal of the organism. Takes the first readable journal in this
    /// client's data directory; if there is none, takes the journal of `partition`.
    async fn any_journal_or_of(&self, partition: u32) -> Result<Uuid, Error> {
        let mut journals = partitions_in(&self.data).into_iter();
        match journals.find_map(|(_, journal)| journal_in(&journal).ok()) {
            Some(journal) => Ok(journal),
            None => self.journal_at(partition).await,
        }
    }

    /// Returns the id of the journal of a partition. If this client knows the number of partitions,
    /// requests the id from the partition's pump. Otherwise, reads the id from the journal in this
    /// client's data directory.
    async fn journal_in_partition(&self, partition: u32) -> Result<Uuid, Error> {
        if self.partitions().is_none() {
            let mut journals = partitions_in(&self.data).into_iter();
            let found = journals.find(|(number, _)| number.unwrap_or_default() == partition);
            let none =
                || Error::failed(format_args!("there is no journal of partition {partition}"));
            return journal_in(&found.ok_or_else(none)?.1);
        }

        self.journal_at(partition).await
    }

    /// Requests the id of the journal of a partition from the partition's pump.
    async fn journal_at(&self, partition: u32) -> Result<Uuid, Error> {
        match self.response(partition, &ServiceRequest::JournalId { partition }).await? {
            ServiceResponse::JournalId(journal) => Ok(journal),
            other => Err(unexpected(&other)),
        }
    }
}

/// Whether the request has a signature.
pub(super) fn is_signed(request: &ServiceRequest) -> bool {
    request.origin().is_some_and(|origin| origin.signature.is_some())
}

/// Returns the refusal of an approval that could not be signed because one of its hashes is no
/// whole digest. A signature covers whole digests alone. Fails if a decision could not be signed
/// for another reason.
pub(super) fn refusal_of_unsigned(request: &ServiceRequest) -> Result<Refusal, Error> {
    let hashes = match request {
        ServiceRequest::Decide(DecisionRequest {
            what: Decision::Approve { hash, preview },
            ..
        }) => [("payload", Some(hash)), ("preview", preview.as_ref())],
        _ => [("payload", None), ("preview", None)],
    };
    let mut hashes = hashes.into_iter().filter_map(|(part, hash)| Some((part, hash?)));
    let Some((part, hash)) = hashes.find(|(_, hash)| Digest::parse(hash).is_err()) else {
        let text = "the decision was not sent, because this host has no record of its thread, \
                    which its signature must name";
        return Err(Error::failed(text));
    };

    let text = format!("`{hash}` does not begin the hash of its {part}; look at it again");
    Ok(Refusal::new(RefusalRule::WrongHash, text, hash.as_bytes()))
}

/// Whether the journal in `data` contains the thread.
fn has_thread(data: &Path, thread: &ThreadId) -> bool {
    let known = JournalReader::open(data).and_then(|reader| audit::is_recorded(&reader, thread));
    known.unwrap_or_default()
}
