//! A person's decision on its way to the pump.

use serde::{Deserialize, Serialize};

use super::Error;
use super::door::in_base64;
use crate::envelope::Refusal;
use crate::ids::{ListenerName, MessageId};
use crate::pump::core::Verb;
use crate::pump::driver::Handle;
use crate::thread::DecisionOrigin;

/// A held call, and what is to become of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Matter {
    pub message: MessageId,
    /// The one its thread is in, where there are several.
    #[serde(default)]
    pub partition: Option<u32>,
    /// For an organism of an earlier version; never believed.
    pub by: ListenerName,
    pub what: What,
    /// Who decides and why. A control socket writes the user that the system names in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The digest of the payload that was looked at, or how it begins.
    Approve {
        hash: String,
    },
    Refuse {
        reason: String,
    },
    /// An answer of this human listener.
    Answer {
        listener: ListenerName,
        #[serde(with = "in_base64")]
        payload: Vec<u8>,
    },
}

impl Matter {
    pub(super) async fn put_to(self, handle: &Handle) -> Result<Option<Refusal>, Error> {
        let verb = match self.what {
            What::Approve { hash } => Verb::Approve { hash },
            What::Refuse { reason } => Verb::Refuse { reason },
            What::Answer { listener, payload } => handle.gated(listener, &payload),
        };
        let ruling = handle.decide(self.message, verb, self.origin).await;
        Ok(ruling.map_err(|_| Error::Stopped)?.err())
    }
}
