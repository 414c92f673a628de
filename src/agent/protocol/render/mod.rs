//! Renders the conversation that the model sees. The model's own turns are verbatim. Every other
//! text is in blocks, and no block can imitate another.

mod conversation;
mod rendered_message;
mod tool_result;

pub use conversation::{ConversationForm, RenderedConversation, conversation};
pub use rendered_message::text_of;
