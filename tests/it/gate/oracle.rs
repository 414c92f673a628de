//! Compares two parsers, the scan and libxml2, on thousands of damaged texts.

use organism::schema::parse_check;
use organism::xml::findings::Finding;
use organism::xml::scan::{BrokenRule, ScanViolation, ScannedElement, scan};

/// Texts that the test damages at each byte in every possible way. The markup of these texts is
/// dense, so most damage changes how they are parsed.
const SEEDS: [&str; 6] = [
    "<?xml version='1.0' encoding='UTF-8'?><!-- c --><a xmlns='u' k=\"v\">x&amp;y<b/></a>",
    "<p:a xmlns:p='u' xmlns:q='v' p:k='1' q:k='2'><q:b xmlns:q='u' q:z=''/></p:a>",
    "<a>&#65;&#x42;<![CDATA[<&]]]]>é漢\u{1F600}<b c='&lt;' d='>'>]] ></b></a>",
    "<a><b><c><d x='1' y='2' z='3'/></c></b><!-- - --></a >",
    "<a xmlns:xml='http://www.w3.org/XML/1998/namespace' xml:lang='en' xmlns=''/>\n",
    "<a b0='' b1='' b2='' b3='' b4='' b5='' b6='' b7='' b8='' b9=''/>",
];

const PIECES: [&str; 40] = [
    "<",
    ">",
    "&",
    ";",
    "'",
    "\"",
    "/",
    "=",
    ":",
    " ",
    "\n",
    "-",
    "--",
    "]]>",
    "<!--",
    "-->",
    "a",
    "b",
    "p:",
    "q:",
    "k='1'",
    " k=''",
    "xmlns:p='u'",
    "xmlns=''",
    "&#0;",
    "&#x41;",
    "&lt;",
    "</a>",
    "<a>",
    "<b/>",
    "<![CDATA[",
    "\u{0}",
    "\u{1F}",
    "\u{FFFE}",
    "é",
    "\u{B7}",
    "1",
    "xml",
    "x",
    "#",
];

/// Whether the results of the two parsers differ only in a known way. In such a case, one parser is
/// stricter than the other, and the gate refuses the text.
fn known(
    scanned: &Result<ScannedElement, ScanViolation>,
    parsed: &Result<(), Vec<Finding>>,
) -> bool {
    match (scanned, parsed) {
        // libxml2 accepts any 1.x version and any encoding that it was told to ignore, and stops at
        // a NUL.
        (Err(violation), Ok(())) => ["XML version", "declared encoding", "U+0000"]
            .iter()
            .any(|start| violation.message.starts_with(start)),
        (Ok(_), Err(findings)) => {
            findings.iter().all(|finding| finding.message.contains("is not a valid URI"))
        }
        _ => false,
    }
}

/// A random generator with its own algorithm, so that a failing seed always gives the same text.
struct Dice(u64);

impl Dice {
    fn random_below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn damage(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.random_below(2) {
            let at = self.random_below(chars.len() + 1);
            let end = (at + self.random_below(4)).min(chars.len());
            let piece: Vec<char> = PIECES[self.random_below(PIECES.len())].chars().collect();
            match self.random_below(4) {
                0 => drop(chars.drain(at..end)),
                1 => drop(chars.splice(at..end, piece)),
                2 => drop(chars.splice(at..at, piece)),
                _ => {
                    let copy = chars[at..end].to_vec();
                    let to = self.random_below(chars.len() + 1);
                    drop(chars.splice(to..to, copy));
                }
            }
        }
        chars.into_iter().collect()
    }
}

#[test]
fn the_scan_and_libxml2_agree_on_what_is_well_formed() {
    let mut dice = Dice(0x0DDB_1A5E_5BAD_5EED);
    let (mut good, mut bad, mut apart) = (0, 0, Vec::new());
    for round in 0..20_000 {
        let text = dice.damage(SEEDS[round % SEEDS.len()]);
        let scanned = scan(text.as_bytes());
        let parsed = parse_check(text.as_bytes());
        match (scanned, parsed) {
            (Ok(scanned), Ok(())) => {
                good += 1;
                let root = &text.as_bytes()[scanned.root];
                assert_eq!(parse_check(root), Ok(()), "{text}");
            }
            (Err(violation), _) if violation.breach == BrokenRule::Forbidden => {}
            (Err(_), Err(_)) => bad += 1,
            (scanned, parsed) if known(&scanned, &parsed) => {}
            (scanned, parsed) => apart.push(format!("{text:?}\n  {scanned:?}\n  {parsed:?}")),
        }
    }
    println!("{good} well-formed, {bad} not, {} apart", apart.len());
    assert!(good > 1_000 && bad > 1_000, "{good} and {bad}: the damage is too much or too little");
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}
