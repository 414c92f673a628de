//! JSON generated from a JSON Schema, and generated schemas, each from a seed.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// A generator of random numbers (xorshift). Equal seeds give equal tests.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

const TEXTS: [&str; 8] = [
    "plain",
    "",
    " spaced  out ",
    "a < b && c > \"d\" 'e'",
    "]]> <!-- <![CDATA[x]]>",
    "line\none\r\n\ttwo",
    "é😀 \u{85}\u{2028}",
    "&amp; &lt;b&gt;",
];
const WORDS: [&str; 4] = ["one", "a&b", "<x>", "é"];
const MARKUP: [&str; 4] = ["", "only text &amp; more", "so <b>much</b>", "<x n=\"1\"/>tail"];

/// A value that fits `schema`; `None` if the schema is not specific enough.
pub fn json(rng: &mut Rng, schema: &Value) -> Option<Value> {
    if let Some(fixed) = schema.get("const") {
        return Some(fixed.clone());
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return Some(rng.pick(choices).clone());
    }
    match schema["type"].as_str()? {
        "object" => object(rng, schema),
        "array" => {
            let times = 1 + rng.below(3);
            let one = |rng: &mut Rng| match &schema["items"] {
                // White space would separate the items of a list.
                item if item["type"] == "string"
                    && item.get("enum").is_none()
                    && !is_markup(item) =>
                {
                    Some(json!(rng.pick(&WORDS)))
                }
                item => json(rng, item),
            };
            (0..times).map(|_| one(rng)).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        "boolean" => Some(json!(rng.below(2) == 0)),
        "integer" => {
            let low = schema["minimum"].as_i64().unwrap_or(-5);
            let high = schema["maximum"].as_i64().unwrap_or(low.saturating_add(1_000_000));
            Some(json!(low + rng.below((high - low) as u64 + 1) as i64))
        }
        "number" => Some(json!(rng.pick(&[0.5, 1.0, 2.25, 1000.125]))),
        _ if is_markup(schema) => Some(json!(rng.pick(&MARKUP))),
        _ => Some(json!(rng.pick(&TEXTS))),
    }
}

fn object(rng: &mut Rng, schema: &Value) -> Option<Value> {
    let properties = schema.get("properties")?.as_object()?;
    if schema.get("maxProperties").is_some() {
        let at = rng.below(properties.len() as u64) as usize;
        let (key, inner) = properties.iter().nth(at)?;
        return Some(json!({key: json(rng, inner)?}));
    }
    let required = |key: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key))
    };
    let mut members = Map::new();
    for (key, inner) in properties {
        if required(key) {
            members.insert(key.clone(), json(rng, inner)?);
        } else if rng.below(3) > 0 {
            members.extend(json(rng, inner).map(|value| (key.clone(), value)));
        }
    }
    Some(Value::Object(members))
}

/// A schema with one root element called `root`.
pub fn schema(rng: &mut Rng) -> String {
    let form = rng.pick(&["qualified", "unqualified"]);
    let mut made = Made { names: 0 };
    let body = made.complex(rng, 0);
    format!(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:made' \
         xmlns='urn:made' elementFormDefault='{form}'><xs:element name='root'>{body}</xs:element>\
         </xs:schema>"
    )
}

struct Made {
    names: u32,
}

impl Made {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    fn simple(&self, rng: &mut Rng) -> &'static str {
        const KINDS: [&str; 8] =
            ["string", "int", "boolean", "decimal", "double", "token", "NMTOKENS", "anyURI"];
        KINDS[rng.below(8) as usize]
    }

    fn attributes(&mut self, rng: &mut Rng) -> String {
        let mut out = String::new();
        for _ in 0..rng.below(3) {
            let (name, kind) = (self.name(), self.simple(rng));
            let usage = rng.pick(&["optional", "required"]);
            let _ = write!(out, "<xs:attribute name='{name}' type='xs:{kind}' use='{usage}'/>");
        }
        out
    }

    fn complex(&mut self, rng: &mut Rng, depth: u64) -> String {
        let content = match rng.below(6) {
            0 => {
                let kind = self.simple(rng);
                let attributes = self.attributes(rng);
                return format!(
                    "<xs:complexType><xs:simpleContent><xs:extension base='xs:{kind}'>{attributes}\
                     </xs:extension></xs:simpleContent></xs:complexType>"
                );
            }
            1 => {
                let elements: String = (0..3).map(|_| self.element(rng, depth, 1)).collect();
                format!("<xs:all>{elements}</xs:all>")
            }
            _ => self.group(rng, depth),
        };
        let mixed = if rng.below(12) == 0 { " mixed='true'" } else { "" };
        format!("<xs:complexType{mixed}>{content}{}</xs:complexType>", self.attributes(rng))
    }

    fn group(&mut self, rng: &mut Rng, depth: u64) -> String {
        let kind = *rng.pick(&["sequence", "sequence", "choice"]);
        let mut inner = String::new();
        for _ in 0..1 + rng.below(3) {
            if depth < 3 && rng.below(4) == 0 {
                inner += &self.group(rng, depth + 1);
            } else {
                inner += &self.element(rng, depth, 3);
            }
        }
        format!("<xs:{kind}{}>{inner}</xs:{kind}>", occurs(rng, 3))
    }

    fn element(&mut self, rng: &mut Rng, depth: u64, most: u64) -> String {
        let (name, occurs) = (self.name(), occurs(rng, most));
        if depth < 3 && rng.below(3) == 0 {
            let body = self.complex(rng, depth + 1);
            return format!("<xs:element name='{name}'{occurs}>{body}</xs:element>");
        }
        format!("<xs:element name='{name}' type='xs:{}'{occurs}/>", self.simple(rng))
    }
}

fn occurs(rng: &mut Rng, most: u64) -> String {
    let low = rng.below(2);
    match rng.below(4) {
        0 if most > 1 => format!(" minOccurs='{low}' maxOccurs='unbounded'"),
        1 if most > 1 => format!(" minOccurs='{low}' maxOccurs='{most}'"),
        2 => " minOccurs='0'".to_owned(),
        _ => String::new(),
    }
}

/// Whether the schema describes a string that contains XML.
fn is_markup(schema: &Value) -> bool {
    schema["description"].as_str().is_some_and(|text| text.starts_with("well-formed XML"))
}
