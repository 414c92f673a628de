//! Renders the conversation that the model sees. The model's own turns appear verbatim. Every other
//! text appears inside a marked block, and is escaped so that it cannot imitate another block.

mod conversation;
mod rendered_message;
mod tool_result;

pub use conversation::{ConversationForm, RenderedConversation, conversation};
pub use rendered_message::text_of;
