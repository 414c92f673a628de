//! The compiled schemas of each OS thread. A compiled schema of libxml2 must only be used on the OS
//! thread that has compiled it, so each OS thread compiles its own copies.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::libxml2::CompiledSchema;
use super::libxml2_messages;
use super::load::SchemaBundle;
use super::schema_problem::SchemaProblem;
use crate::ids::Digest;
use crate::limits;

/// A compiled schema that belongs to one OS thread.
pub type ThreadSchema = Rc<RefCell<CompiledSchema>>;

/// Compiled schemas by digest. The hasher is fast, because every check of a payload looks up a
/// schema.
type CompiledSchemas = HashMap<Digest, ThreadSchema, foldhash::fast::RandomState>;

thread_local! {
    static COMPILED: RefCell<CompiledSchemas> = RefCell::default();
}

/// Returns the compiled schema of `bundle` for the present OS thread. Compiles the schema at its
/// first use on this OS thread.
pub fn schema_of(bundle: &SchemaBundle) -> Result<ThreadSchema, Vec<SchemaProblem>> {
    COMPILED.with_borrow_mut(|all| {
        if let Some(schema) = all.get(&bundle.digest) {
            return Ok(schema.clone());
        }

        let compiled = CompiledSchema::compile(&bundle.compiled);
        let (schema, _) = compiled.map_err(|d| libxml2_messages::refused(bundle, &d))?;
        if all.len() >= limits::GRAMMARS_MAX {
            all.clear();
        }

        let schema = Rc::new(RefCell::new(schema));
        all.insert(bundle.digest, schema.clone());
        Ok(schema)
    })
}
