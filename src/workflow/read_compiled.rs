//! Reads a workflow definition from its compiled form, which is canonical XML. This is the inverse
//! of `compile`.
//!
//! A run continues on the definition in the journal, so this program must not ignore any part of
//! the XML. To make sure, it compiles the definition again and compares the two XML texts.

use std::str::FromStr;
use std::time::Duration;

use crate::contract::{Budget, WORKFLOW_NAMESPACE};
use crate::envelope::Money;
use crate::ids::{ListenerName, PayloadName};
use crate::schema::{ShortField, ShortType};
use crate::xml::element::Element;

use super::compile::{ASK_OUTPUT, COUNTS, EXPRESSION, FIELDS, HUMAN, LAST_GOAL, compile};
use super::definition::{
    AskForm, ChooseBranch, DelegatedRoles, EachItem, FailurePolicy, GoalCondition, GoalDefinition,
    GoalForm, GoalId, GoalOutput, GoalTarget, ItemFailure, ItemVerification, LoopEnd, Mapping,
    PlaceId, Placed, Supervision, WorkflowDefinition, WorkflowInput, WorkflowOutput,
};

/// Why a text is not the compiled form of a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompiledFormError {
    #[error("it is no element of the namespace {WORKFLOW_NAMESPACE}")]
    NotAnElement,
    #[error("<{element}> has no {part} that this program reads")]
    Unreadable { element: String, part: String },
    /// The text contains settings that this program does not know. A newer version of the program
    /// may have written it.
    #[error("it has a setting that this program does not know")]
    NotCanonical,
}

/// Reads the definition in an XML text that [`compile`] has written. All values in the result have
/// the place `PlaceId::default()`, because the XML contains no places in the config.
///
/// # Errors
///
/// Fails if the text is no compiled form, or if compiling the definition again gives
/// another text.
pub fn read_compiled(text: &str) -> Result<WorkflowDefinition, CompiledFormError> {
    let root = Element::read(text).filter(|root| root.name.namespace() == WORKFLOW_NAMESPACE);
    let root = root.ok_or(CompiledFormError::NotAnElement)?;
    let definition = CompiledElement(&root).workflow()?;
    if compile(&definition).text == text {
        Ok(definition)
    } else {
        Err(CompiledFormError::NotCanonical)
    }
}

type ReadResult<T> = Result<T, CompiledFormError>;

fn placed<T>(value: T) -> Placed<T> {
    Placed::new(value, PlaceId::default())
}

fn listener(text: &str) -> Option<ListenerName> {
    ListenerName::parse(text).ok()
}

fn payload(text: &str) -> Option<PayloadName> {
    PayloadName::parse(text).ok()
}

/// Returns the value whose name in the list `words` is `word`; `None` if no value has this name.
fn value_of<T: Clone>(words: &[(&str, T)], word: &str) -> Option<T> {
    let found = words.iter().find(|(known, _)| *known == word);
    found.map(|(_, value)| value.clone())
}

/// An element in the compiled XML of a definition.
#[derive(Clone, Copy)]
struct CompiledElement<'a>(&'a Element);

impl<'a> CompiledElement<'a> {
    fn unreadable(self, part: &str) -> CompiledFormError {
        let element = self.0.local_name().to_owned();
        CompiledFormError::Unreadable { element, part: part.to_owned() }
    }

    fn children(self, local: &'static str) -> impl Iterator<Item = Self> {
        let children = self.0.children().map(CompiledElement);
        children.filter(move |child| child.0.local_name() == local)
    }

    fn child(self, local: &'static str) -> ReadResult<Self> {
        self.children(local).next().ok_or_else(|| self.unreadable(local))
    }

    fn text(self) -> Placed<String> {
        placed(self.0.own_text())
    }

    /// Returns the value of an attribute, as `read` parses it. Fails if the element does not have
    /// the attribute, or if `read` returns `None`.
    fn required<T>(self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> ReadResult<T> {
        self.optional(name, read)?.ok_or_else(|| self.unreadable(name))
    }

    fn optional<T>(
        self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> ReadResult<Option<T>> {
        let Some(text) = self.0.attribute(name) else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| self.unreadable(name))
    }

    fn number<T: FromStr>(self, name: &str) -> ReadResult<T> {
        self.required(name, |text| text.parse().ok())
    }

    fn name(self, attribute: &str) -> ReadResult<Placed<ListenerName>> {
        self.required(attribute, listener).map(placed)
    }

    fn goal_id(self, attribute: &str) -> ReadResult<Placed<GoalId>> {
        self.required(attribute, GoalId::parse).map(placed)
    }

    /// Reads goal ids from the texts of the children with this name.
    fn goal_ids(self, local: &'static str) -> ReadResult<Vec<Placed<GoalId>>> {
        let ids = self.children(local).map(|child| {
            let id = GoalId::parse(&child.0.own_text());
            id.map(placed).ok_or_else(|| child.unreadable("goal"))
        });
        ids.collect()
    }

    fn limits(self) -> ReadResult<(Option<Duration>, Budget)> {
        let number = |text: &str| text.parse().ok();
        let timeout = self.optional("timeout-ms", number)?.map(Duration::from_millis);
        let tokens = self.optional("tokens", number)?;
        let money = self.optional("money-billionths", number)?.map(Money);
        Ok((timeout, Budget { tokens, money }))
    }

    fn workflow(self) -> ReadResult<WorkflowDefinition> {
        let (timeout, budget) = self.limits()?;
        let peers = self.children("peer").map(|peer| {
            let name = listener(&peer.0.own_text());
            name.map(placed).ok_or_else(|| peer.unreadable("name"))
        });
        let goals = self.children("goal").map(Self::goal);
        Ok(WorkflowDefinition {
            name: self.name("name")?,
            description: self.child("description")?.0.own_text(),
            input: self.child("input")?.input()?,
            output: self.child("output")?.workflow_output()?,
            peers: peers.collect::<ReadResult<_>>()?,
            on_failure: self.child("on-failure")?.policy()?,
            report_to: self.optional("report-to", listener)?.map(placed),
            timeout,
            budget,
            goals: goals.collect::<ReadResult<_>>()?,
        })
    }

    fn input(self) -> ReadResult<WorkflowInput> {
        match self.optional("payload", payload)? {
            Some(name) => Ok(WorkflowInput::Payload(placed(name))),
            None => self.types().map(WorkflowInput::Types),
        }
    }

    fn workflow_output(self) -> ReadResult<WorkflowOutput> {
        match self.0.attribute("of") {
            Some(LAST_GOAL) => Ok(WorkflowOutput::LastGoal),
            Some(EXPRESSION) => Ok(WorkflowOutput::One(self.text())),
            Some(FIELDS) => self.fields().map(WorkflowOutput::Table),
            _ => Err(self.unreadable("of")),
        }
    }

    fn fields(self) -> ReadResult<Vec<(String, Placed<String>)>> {
        let fields = self.children("field").map(|field| {
            let name = field.required("name", |text| Some(text.to_owned()))?;
            Ok((name, field.text()))
        });
        fields.collect()
    }

    fn types(self) -> ReadResult<ShortType> {
        match self.required("type", |text| Some(text.to_owned()))?.as_str() {
            "children" => {
                let fields = self.children("child").map(|child| {
                    Ok(ShortField {
                        name: child.required("name", |text| Some(text.to_owned()))?,
                        occurs: child.required("occurs", |word| value_of(&COUNTS, word))?,
                        short_type: child.types()?,
                    })
                });
                fields.collect::<ReadResult<_>>().map(ShortType::Fields)
            }
            "words" => {
                let words = self.children("word").map(|word| word.0.own_text());
                Ok(ShortType::Words(words.collect()))
            }
            name => ShortType::named(name).ok_or_else(|| self.unreadable("type")),
        }
    }

    fn policy(self) -> ReadResult<FailurePolicy> {
        if let Some(id) = self.optional("goal", GoalId::parse)? {
            return Ok(FailurePolicy::Goal(placed(id)));
        }

        match self.0.own_text().as_str() {
            "stop" => Ok(FailurePolicy::Stop),
            "skip" => Ok(FailurePolicy::Skip),
            "undo" => Ok(FailurePolicy::Undo),
            _ => Err(self.unreadable("policy")),
        }
    }

    fn goal(self) -> ReadResult<GoalDefinition> {
        let (timeout, budget) = self.limits()?;
        let context = self.children("context").next();
        let supervision = self.children("supervisor").next();
        let roles = self.children("roles").next();
        Ok(GoalDefinition {
            id: self.goal_id("id")?,
            form: self.form()?,
            needs: Some(self.goal_ids("need")?),
            context: context.map(|context| context.goal_ids("show")).transpose()?,
            output: self.child("output")?.goal_output()?,
            retry: self.number("retry")?,
            on_failure: Some(self.child("on-failure")?.policy()?),
            timeout,
            budget,
            budget_place: PlaceId::default(),
            supervision: supervision.map(Self::supervision).transpose()?,
            roles: roles.map(Self::roles).transpose()?,
        })
    }

    fn goal_output(self) -> ReadResult<GoalOutput> {
        match (self.optional("payload", payload)?, self.0.attribute("type")) {
            (Some(name), _) => Ok(GoalOutput::Payload(placed(name))),
            (None, Some(_)) => self.types().map(GoalOutput::Types),
            (None, None) => Ok(GoalOutput::Text),
        }
    }

    fn supervision(self) -> ReadResult<Supervision> {
        let human = self.optional("is", |word| (word == HUMAN).then_some(()))?;
        Ok(Supervision {
            supervisor: self.name("name")?,
            is_human: human.is_some(),
            supervise: self.0.own_text(),
            corrections: self.number("corrections")?,
        })
    }

    fn roles(self) -> ReadResult<DelegatedRoles> {
        Ok(DelegatedRoles {
            agent: self.name("agent")?,
            max: self.number("max")?,
            depth: self.number("depth")?,
            names: self.children("role").map(|role| role.0.own_text()).collect(),
        })
    }

    /// Reads the form of a goal from the child element that describes it.
    fn form(self) -> ReadResult<GoalForm> {
        let forms = self.0.children().map(CompiledElement);
        let mut read = forms.filter_map(|child| child.form_of_its_name().transpose());
        read.next().unwrap_or_else(|| Err(self.unreadable("form")))
    }

    /// Reads a goal's form from this element, whose name states the form: a kind of target, such as
    /// `agent`, or another form, such as `all`. Returns `None` if the name states no form.
    fn form_of_its_name(self) -> ReadResult<Option<GoalForm>> {
        if let Some(target) = self.target_of_its_name()? {
            return Ok(Some(GoalForm::Run(target)));
        }

        let form = match self.0.local_name() {
            "all" => {
                let (agents, prompt) = self.several()?;
                let vote = self.children("vote").next().map(Self::text);
                GoalForm::All { agents, prompt, vote }
            }
            "first" => {
                let (agents, prompt) = self.several()?;
                GoalForm::First { agents, prompt }
            }
            "each" => GoalForm::Each(Box::new(self.each()?)),
            "loop" => GoalForm::Loop {
                members: self.goal_ids("run")?,
                until: self.child("until")?.condition()?,
                max: self.number("max")?,
                at_max: self.required("at-max", |word| value_of(&LoopEnd::WORDS, word))?,
            },
            "choose" => {
                let branches = self.children("branch").map(|branch| {
                    let when = branch.children("when").next();
                    let when = when.map(Self::condition).transpose()?;
                    let run = branch.goal_ids("run")?;
                    Ok(ChooseBranch { when, run, place: PlaceId::default() })
                });
                GoalForm::Choose(branches.collect::<ReadResult<_>>()?)
            }
            "ask" => {
                let form = match self.0.attribute("form") {
                    Some(ASK_OUTPUT) => AskForm::Output,
                    Some(_) => return Err(self.unreadable("form")),
                    None => {
                        let about = self.optional("about", GoalId::parse)?.map(placed);
                        AskForm::Verdict { about }
                    }
                };
                let prompt = self.child("prompt")?.text();
                GoalForm::Ask { human: self.name("human")?, prompt, form }
            }
            _ => return Ok(None),
        };
        Ok(Some(form))
    }

    fn several(self) -> ReadResult<(Vec<Placed<ListenerName>>, Placed<String>)> {
        let agents = self.children("agent").map(|agent| agent.name("name"));
        Ok((agents.collect::<ReadResult<_>>()?, self.child("prompt")?.text()))
    }

    fn each(self) -> ReadResult<EachItem> {
        let targets = self.0.children().map(CompiledElement);
        let mut targets = targets.filter_map(|child| child.target_of_its_name().transpose());
        let verify = self.children("verify").next().map(|verify| {
            Ok(ItemVerification { goal: verify.goal_id("goal")?, accept: verify.text() })
        });
        Ok(EachItem {
            items: self.child("items")?.text(),
            target: targets.next().unwrap_or_else(|| Err(self.unreadable("target")))?,
            max_items: self.number("max-items")?,
            concurrency: self.number("concurrency")?,
            on_item_failure: self
                .required("on-item-failure", |word| value_of(&ItemFailure::WORDS, word))?,
            verify: verify.transpose()?,
            role: self.children("role").next().map(Self::text),
        })
    }

    /// Reads a goal's target from this element, whose name states the kind of target: `agent`,
    /// `listener` or `workflow`. Returns `None` if the element has another name.
    fn target_of_its_name(self) -> ReadResult<Option<GoalTarget>> {
        let target = match self.0.local_name() {
            "agent" => GoalTarget::Agent {
                agent: self.name("name")?,
                prompt: self.child("prompt")?.text(),
            },
            "listener" => GoalTarget::Listener {
                listener: self.name("name")?,
                payload: self.optional("payload", payload)?.map(placed),
                with: self.child("with")?.mapping()?,
            },
            "workflow" => GoalTarget::Workflow {
                workflow: self.name("name")?,
                payload: self.optional("payload", payload)?.map(placed),
                with: self.child("with")?.mapping()?,
            },
            _ => return Ok(None),
        };
        Ok(Some(target))
    }

    fn mapping(self) -> ReadResult<Mapping> {
        match self.0.attribute("of") {
            Some(EXPRESSION) => Ok(Mapping::Element(self.text())),
            Some(FIELDS) => self.fields().map(Mapping::Fields),
            _ => Err(self.unreadable("of")),
        }
    }

    fn condition(self) -> ReadResult<GoalCondition> {
        match self.optional("judge", listener)? {
            Some(agent) => {
                let prompt = self.child("prompt")?.text();
                Ok(GoalCondition::Judge { agent: placed(agent), prompt })
            }
            None => Ok(GoalCondition::XPath(self.text())),
        }
    }
}
