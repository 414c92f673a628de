//! A person's decision on its way to the pump.

use serde::{Deserialize, Serialize};

use super::Error;
use super::door::in_base64;
use crate::envelope::Refusal;
use crate::ids::{ListenerName, MessageId};
use crate::pump::driver::Handle;
use crate::thread::{Decision, DecisionOrigin};

/// A held call, and what is to become of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Matter {
    pub message: MessageId,
    /// The one its thread is in, where there are several.
    #[serde(default)]
    pub partition: Option<u32>,
    /// For an organism of an earlier version; never believed.
    pub by: ListenerName,
    pub what: Decision<SubmittedAnswer>,
    /// Who decides and why. A control socket writes the user that the system names in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

/// An answer of a human listener as it came, byte for byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmittedAnswer {
    #[serde(rename = "listener")]
    pub listener: ListenerName,
    #[serde(rename = "payload", with = "in_base64")]
    pub payload: Vec<u8>,
}

impl Matter {
    pub(super) async fn put_to(self, handle: &Handle) -> Result<Option<Refusal>, Error> {
        let gated = |answer: SubmittedAnswer| handle.gated(answer.listener, &answer.payload);
        let decision = self.what.map_answer(gated);
        let ruling = handle.decide(self.message, decision, self.origin).await;
        Ok(ruling.map_err(|_| Error::Stopped)?.err())
    }
}
