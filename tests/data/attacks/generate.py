#!/usr/bin/env python3
"""Generate hostile XML, XSD and byte streams for the bus. Own work.

usage: generate.py OUTDIR [--big] [--port=PORT]
PORT is where a loopback listener counts connections: there must be none.
Writes files plus MANIFEST.jsonl: {file, class, bytes, expect, limit_ms, note}.
expect: reject    = refused with a system payload that names the reason, nothing delivered
        literal   = may be accepted, but then the content is exactly the typed characters (never expanded)
        accept    = must be accepted (guards against over-blocking)
        schema-reject = the schema is refused at registration
Without --big the set is about 17 MB.
"""
import sys, os, json, hashlib
out = sys.argv[1]; BIG = '--big' in sys.argv
PORT = next((a[7:] for a in sys.argv if a.startswith('--port=')), '8099')
os.makedirs(out, exist_ok=True)
M = []
ENV = 'https://xml-pipeline.org/ns/envelope/v1'
CORE = 'https://xml-pipeline.org/ns/core/v1'
def payload(inner, root='<add xmlns="urn:org:calc:v1">', end='</add>'): return root + inner + end
def w(name, data, cls, expect, ms=200, note=''):
    if isinstance(data, str): data = data.replace('127.0.0.1:8099', '127.0.0.1:' + PORT).encode('utf8')
    p = os.path.join(out, name); os.makedirs(os.path.dirname(p), exist_ok=True)
    with open(p, 'wb') as f: f.write(data)
    M.append(dict(file=name, **{'class': cls}, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()[:16], expect=expect, limit_ms=ms, note=note))
AB = '<a>1</a><b>2</b>'

# -- DTD, entities
w('dtd/xxe_file.xml', '<!DOCTYPE add [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + payload('<a>&x;</a><b>2</b>'), 'xxe', 'reject')
w('dtd/xxe_file_rel.xml', '<!DOCTYPE add [<!ENTITY x SYSTEM "CANARY.txt">]>' + payload('<a>&x;</a><b>2</b>'), 'xxe', 'reject', note='put CANARY.txt beside it; its text must appear nowhere')
w('dtd/xxe_http.xml', '<!DOCTYPE add [<!ENTITY x SYSTEM "http://127.0.0.1:8099/xxe">]>' + payload('<a>&x;</a><b>2</b>'), 'xxe', 'reject', note='listen on 8099: zero connections')
w('dtd/xxe_param.xml', '<!DOCTYPE add [<!ENTITY % p SYSTEM "http://127.0.0.1:8099/p.dtd">%p;]>' + payload(AB), 'xxe', 'reject')
w('dtd/xxe_ext_subset.xml', '<!DOCTYPE add SYSTEM "http://127.0.0.1:8099/e.dtd">' + payload(AB), 'xxe', 'reject')
w('dtd/xxe_public.xml', '<!DOCTYPE add PUBLIC "-//X//Y" "file:///dev/random">' + payload(AB), 'xxe', 'reject')
w('dtd/xinclude_file.xml', payload('<a><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" parse="text" href="/etc/passwd"/></a><b>2</b>'), 'xxe', 'reject', note='XInclude must not be processed; the schema refuses the element')
w('dtd/stylesheet_pi.xml', '<?xml-stylesheet href="http://127.0.0.1:8099/x.xsl"?>' + payload(AB), 'xxe', 'literal', note='either refused (restricted XML) or the PI is dropped; never fetched')
w('dtd/schemaloc.xml', '<add xmlns="urn:org:calc:v1" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="urn:org:calc:v1 http://127.0.0.1:8099/x.xsd">' + AB + '</add>', 'xxe', 'literal', note='hint ignored, zero connections')
w('dtd/nons_schemaloc.xml', '<add xmlns="urn:org:calc:v1" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="file:///etc/passwd">' + AB + '</add>', 'xxe', 'literal')
ents = '<!ENTITY l0 "lol">' + ''.join('<!ENTITY l%d "%s">' % (i, ('&l%d;' % (i - 1)) * 10) for i in range(1, 10))
w('dtd/billion_laughs.xml', '<!DOCTYPE add [%s]>' % ents + payload('<a>&l9;</a><b>2</b>'), 'expansion', 'reject')
w('dtd/billion_laughs_attr.xml', '<!DOCTYPE add [%s]>' % ents + '<add xmlns="urn:org:calc:v1" t="&l9;">' + AB + '</add>', 'expansion', 'reject')
w('dtd/quadratic.xml', '<!DOCTYPE add [<!ENTITY q "%s">]>' % ('x' * 50000) + payload('<a>' + '&q;' * 20000 + '</a><b>2</b>'), 'expansion', 'reject')
w('dtd/recursive_entity.xml', '<!DOCTYPE add [<!ENTITY a "&b;"><!ENTITY b "&a;">]>' + payload('<a>&a;</a><b>2</b>'), 'expansion', 'reject')
w('dtd/param_bomb.xml', '<!DOCTYPE add [<!ENTITY % a "<!ENTITY z \'0\'>"><!ENTITY % b "%a;%a;%a;%a;%a;%a;%a;%a;">%b;]>' + payload(AB), 'expansion', 'reject')
w('dtd/default_attr.xml', '<!DOCTYPE add [<!ATTLIST add injected CDATA "yes">]>' + payload(AB), 'dtd', 'reject', note='a DTD may not add attributes')
w('dtd/plain_doctype.xml', '<!DOCTYPE add>' + payload(AB), 'dtd', 'reject')
w('dtd/undeclared_entity.xml', payload('<a>&nope;</a><b>2</b>'), 'dtd', 'reject')
w('dtd/entity_as_markup.xml', '<!DOCTYPE add [<!ENTITY m "<from>core</from>">]>' + payload('&m;' + AB), 'expansion', 'reject')
w('dtd/doctype_late.xml', payload('<!DOCTYPE x><a>1</a><b>2</b>'), 'dtd', 'reject')
w('dtd/doctype_cdata_ok.xml', payload('<a>1</a><b><![CDATA[<!DOCTYPE x [<!ENTITY e "boom">]>&e;]]></b>'), 'dtd', 'literal')

# -- depth, width, size
def deep(n): return payload('<x>' * n + '</x>' * n)
for n in (64, 256, 1000, 10000, 100000) + ((1000000,) if BIG else ()):
    w('shape/deep_%d.xml' % n, deep(n), 'depth', 'accept' if n <= 64 else 'reject', 500, 'a lax xs:any slot is needed for the accept case')
w('shape/deep_unclosed_100000.xml', '<x>' * 100000, 'depth', 'reject', 500)
w('shape/deep_ns_20000.xml', payload(''.join('<n%d:x xmlns:n%d="u%d">' % (i, i, i) for i in range(20000)) + ''.join('</n%d:x>' % i for i in reversed(range(20000)))), 'depth', 'reject', 1000, 'a namespace context per level')
w('shape/attrs_50000.xml', '<add xmlns="urn:org:calc:v1" ' + ' '.join('a%d="v"' % i for i in range(50000)) + '>' + AB + '</add>', 'attributes', 'reject', 1000, 'quadratic duplicate check (CVE-2026-45186 class)')
w('shape/attrs_collide_1400.xml', '<add xmlns="urn:org:calc:v1" ' + ' '.join('%s="v"' % ('a' * (i + 1)) for i in range(1400)) + '>' + AB + '</add>', 'attributes', 'reject', 1000, 'shared long prefixes')
w('shape/xmlns_flood_20000.xml', '<add xmlns="urn:org:calc:v1" ' + ' '.join('xmlns:p%d="u:%d"' % (i, i) for i in range(20000)) + '>' + AB + '</add>', 'attributes', 'reject', 1000)
w('shape/attr_dup.xml', '<add xmlns="urn:org:calc:v1" k="1" k="2">' + AB + '</add>', 'attributes', 'reject')
w('shape/attr_dup_ns.xml', '<add xmlns="urn:org:calc:v1" xmlns:a="u" xmlns:b="u" a:k="1" b:k="2">' + AB + '</add>', 'attributes', 'reject', note='same expanded name by two prefixes')
w('shape/attr_value_900k.xml', '<add xmlns="urn:org:calc:v1" k="%s">' % ('v' * 900000) + AB + '</add>', 'size', 'reject', 500)
w('shape/name_500k.xml', '<' + 'n' * 500000 + '/>', 'size', 'reject', 500)
def exact(n):
    k = len(payload('<a>1</a><b></b>')); return payload('<a>1</a><b>' + 'x' * (n - k) + '</b>')
w('shape/payload_1MiB_minus_4096.xml', exact(1048576 - 4096), 'size', 'accept', 500, 'room for the envelope under a 1 MiB message limit')
w('shape/payload_1MiB.xml', exact(1048576), 'size', 'reject', 500, 'payload alone fills the limit: the envelope does not fit')
w('shape/payload_1MiB_plus_1.xml', exact(1048577), 'size', 'reject', 500)
w('shape/children_200000.xml', payload('<a/>' * 200000), 'width', 'reject', 1000)
w('shape/comment_900k.xml', payload('<!--' + 'c' * 900000 + '-->' + AB), 'size', 'literal', 500)
w('shape/comments_100000.xml', payload('<!---->' * 100000 + AB), 'width', 'literal', 1000)
w('shape/pis_50000.xml', payload('<?p?>' * 50000 + AB), 'width', 'literal', 1000)
w('shape/cdata_split_100000.xml', payload('<a>1</a><b>' + '<![CDATA[x]]>' * 60000 + '</b>'), 'width', 'literal', 1000, 'value is 60,000 x characters')
w('shape/charref_flood.xml', payload('<a>1</a><b>' + '&#120;' * 150000 + '</b>'), 'width', 'literal', 1000)
w('shape/whitespace_900k.xml', payload(' \n' * 450000 + AB), 'size', 'literal', 500, 'xmppbomb class')
w('shape/slow_drip.xml', payload(AB), 'slow', 'accept', 60000, 'send one byte per second over a socket: a deadline must close it, others keep going')
if BIG:
    w('shape/text_64MiB.xml', payload('<a>1</a><b>' + 'x' * (64 << 20) + '</b>'), 'size', 'reject', 1000, 'refused before it is buffered whole')

# -- encoding and characters
w('enc/invalid_utf8.xml', payload('<a>1</a><b>').encode()[:-4] + b'\xff\xfe</b></add>', 'encoding', 'reject')
w('enc/overlong_lt.xml', b'<add xmlns="urn:org:calc:v1"><a>1</a><b>\xc0\xbcx</b></add>', 'encoding', 'reject', note='overlong "<"')
w('enc/surrogate.xml', b'<add xmlns="urn:org:calc:v1"><a>1</a><b>\xed\xa0\x80</b></add>', 'encoding', 'reject')
w('enc/truncated_utf8.xml', b'<add xmlns="urn:org:calc:v1"><a>1</a><b>\xe2\x82', 'encoding', 'reject')
w('enc/nul.xml', b'<add xmlns="urn:org:calc:v1"><a>1\x00</a><b>2</b></add>', 'encoding', 'reject')
w('enc/control.xml', b'<add xmlns="urn:org:calc:v1"><a>1\x0b</a><b>2</b></add>', 'encoding', 'reject')
w('enc/charref_nul.xml', payload('<a>&#0;</a><b>2</b>'), 'encoding', 'reject')
w('enc/charref_surrogate.xml', payload('<a>&#xD800;</a><b>2</b>'), 'encoding', 'reject')
w('enc/charref_big.xml', payload('<a>&#x110000;</a><b>2</b>'), 'encoding', 'reject')
w('enc/charref_overflow.xml', payload('<a>&#99999999999999999999;</a><b>2</b>'), 'encoding', 'reject')
w('enc/fffe.xml', payload('<a>1</a><b>\ufffe</b>'), 'encoding', 'reject')
w('enc/utf16le.xml', '\ufeff'.encode('utf-16-le') + payload(AB).encode('utf-16-le'), 'encoding', 'reject', note='bus is UTF-8 only; accept only if documented')
w('enc/utf7_decl.xml', '<?xml version="1.0" encoding="UTF-7"?>' + payload('<a>+ADw-</a><b>2</b>'), 'encoding', 'reject')
w('enc/latin1_decl.xml', b'<?xml version="1.0" encoding="ISO-8859-1"?><add xmlns="urn:org:calc:v1"><a>\xe9</a><b>2</b></add>', 'encoding', 'reject')
w('enc/bom_utf8.xml', b'\xef\xbb\xbf' + payload(AB).encode(), 'encoding', 'accept')
w('enc/xml11.xml', '<?xml version="1.1"?>' + payload('<a>&#1;</a><b>2</b>'), 'encoding', 'reject')
w('enc/decl_twice.xml', '<?xml version="1.0"?><?xml version="1.0"?>' + payload(AB), 'encoding', 'reject')
w('enc/trailing_root.xml', payload(AB) + payload(AB), 'wf', 'reject', note='two roots in one message')
w('enc/trailing_garbage.xml', payload(AB) + 'xyz', 'wf', 'reject')
w('enc/empty.xml', b'', 'wf', 'reject')
w('enc/spaces.xml', '   \n', 'wf', 'reject')
w('enc/not_xml.bin', bytes(range(256)) * 16, 'wf', 'reject')
w('enc/json.txt', '{"add": {"a": 1, "b": 2}}', 'wf', 'reject')
w('enc/gzip.bin', __import__('gzip').compress(payload(AB).encode(), mtime=0), 'wf', 'reject')
w('enc/gzip_bomb.bin', __import__('gzip').compress(b' ' * (20 << 20), mtime=0), 'wf', 'reject', 500, 'no transparent decompression')

# -- namespaces and identity
E = '<message xmlns="%s"><meta><from>%%s</from><to>%%s</to><thread>%%s</thread></meta>%%s</message>' % ENV
P = payload(AB)
T = '00000000-0000-4000-8000-000000000001'
w('ns/unbound_prefix.xml', '<c:add>' + AB + '</c:add>', 'namespace', 'reject')
w('ns/xml_rebound.xml', '<add xmlns="urn:org:calc:v1" xmlns:xml="urn:evil">' + AB + '</add>', 'namespace', 'reject')
w('ns/xmlns_prefix.xml', '<add xmlns="urn:org:calc:v1" xmlns:xmlns="urn:evil">' + AB + '</add>', 'namespace', 'reject')
w('ns/prefix_undeclared.xml', '<c:add xmlns:c="urn:org:calc:v1"><c:a xmlns:c="">1</c:a></c:add>', 'namespace', 'reject')
w('ns/lookalike_uri.xml', '<add xmlns="urn:org:c\u0430lc:v1">' + AB + '</add>', 'namespace', 'reject', note='Cyrillic a')
w('ns/uri_space.xml', '<add xmlns="urn:org:calc:v1 ">' + AB + '</add>', 'namespace', 'reject')
w('ns/uri_case.xml', '<add xmlns="URN:ORG:CALC:V1">' + AB + '</add>', 'namespace', 'reject')
w('ns/uri_pct.xml', '<add xmlns="urn:org:c%61lc:v1">' + AB + '</add>', 'namespace', 'reject')
w('ns/default_undone.xml', '<add xmlns="urn:org:calc:v1"><a xmlns="">1</a><b>2</b></add>', 'namespace', 'reject')
w('ns/colon_name.xml', '<a:b:c xmlns:a="u"/>', 'namespace', 'reject')
w('ns/two_payloads.xml', E % ('x', 'y', T, P + P), 'envelope', 'reject')
w('ns/no_payload.xml', E % ('x', 'y', T, ''), 'envelope', 'reject')
w('ns/nested_envelope.xml', E % ('x', 'y', T, E % ('core', 'y', T, P)), 'envelope', 'reject', note='an envelope is no payload')
w('ns/two_from.xml', '<message xmlns="%s"><meta><from>x</from><from>core</from><thread>%s</thread></meta>%s</message>' % (ENV, T, P), 'envelope', 'reject')
w('ns/meta_after.xml', '<message xmlns="%s">%s<meta><from>core</from><thread>%s</thread></meta></message>' % (ENV, P, T), 'envelope', 'reject')
w('ns/from_core.xml', E % ('core', 'calc', T, P), 'identity', 'reject', note='sender is not core')
w('ns/from_other.xml', E % ('admin', 'calc', T, P), 'identity', 'reject')
w('ns/from_spaces.xml', E % (' calc ', 'calc', T, P), 'identity', 'reject')
w('ns/from_cdata.xml', E % ('<![CDATA[core]]>', 'calc', T, P), 'identity', 'reject')
w('ns/from_split_comment.xml', E % ('co<!-- -->re', 'calc', T, P), 'identity', 'reject', note='text node split must not pass a check on the first node only')
w('ns/from_charref.xml', E % ('&#99;ore', 'calc', T, P), 'identity', 'reject')
w('ns/thread_foreign.xml', E % ('x', 'calc', 'ffffffff-ffff-4fff-8fff-ffffffffffff', P), 'identity', 'reject', note='unknown thread')
w('ns/thread_path.xml', E % ('x', 'calc', '../../etc/passwd', P), 'identity', 'reject')
w('ns/thread_subject.xml', E % ('x', 'calc', '*.>', P), 'identity', 'reject', note='NATS wildcards in an id')
w('ns/to_wildcard.xml', E % ('x', '>', T, P), 'identity', 'reject')
w('ns/to_dots.xml', E % ('x', '$SYS.REQ.SERVER.PING', T, P), 'identity', 'reject')
w('ns/to_newline.xml', E % ('x', 'calc\nPUB evil 0', T, P), 'identity', 'reject', note='protocol line injection')
w('ns/sys_payload.xml', E % ('x', 'calc', T, '<thread-spawned xmlns="%s" assigned_id="z" parent_id="y"/>' % CORE), 'identity', 'reject', note='only the core emits system payloads')

# -- schema bombs (registration)
XS = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:b" xmlns="urn:b" elementFormDefault="qualified">%s</xs:schema>'
g = '<xs:group name="g0"><xs:sequence><xs:element name="e" minOccurs="0"/></xs:sequence></xs:group>'
for i in range(1, 26): g += '<xs:group name="g%d"><xs:sequence><xs:group ref="g%d"/><xs:group ref="g%d"/></xs:sequence></xs:group>' % (i, i - 1, i - 1)
w('xsd/group_bomb.xsd', XS % (g + '<xs:element name="r"><xs:complexType><xs:group ref="g25"/></xs:complexType></xs:element>'), 'schema', 'schema-reject', 3000, '2^25 particles (sissaschool/xmlschema#59 class)')
w('xsd/maxoccurs_bomb.xsd', XS % '<xs:element name="r"><xs:complexType><xs:sequence minOccurs="0" maxOccurs="30000"><xs:element name="a" minOccurs="0" maxOccurs="30000"/></xs:sequence></xs:complexType></xs:element>', 'schema', 'schema-reject', 3000, 'counted automaton')
w('xsd/choice_ambiguous.xsd', XS % ('<xs:element name="r"><xs:complexType><xs:choice maxOccurs="unbounded">' + '<xs:sequence><xs:element name="a"/><xs:element name="a" minOccurs="0"/></xs:sequence>' * 40 + '</xs:choice></xs:complexType></xs:element>'), 'schema', 'schema-reject', 3000, 'unique particle attribution')
w('xsd/pattern_redos.xsd', XS % '<xs:element name="r"><xs:simpleType><xs:restriction base="xs:string"><xs:pattern value="(a|aa)+$|((a+)+)+b"/></xs:restriction></xs:simpleType></xs:element>', 'schema', 'literal', 1000, 'then validate xsd/pattern_redos.xml in linear time')
w('xsd/pattern_redos.xml', '<r xmlns="urn:b">' + 'a' * 60 + 'X</r>', 'schema', 'reject', 500)
w('xsd/pattern_huge_rep.xsd', XS % '<xs:element name="r"><xs:simpleType><xs:restriction base="xs:string"><xs:pattern value="((a{1,1000}){1,1000}){1,1000}"/></xs:restriction></xs:simpleType></xs:element>', 'schema', 'schema-reject', 3000)
w('xsd/pattern_paren.xsd', XS % ('<xs:element name="r"><xs:simpleType><xs:restriction base="xs:string"><xs:pattern value="%s"/></xs:restriction></xs:simpleType></xs:element>' % ('(' * 20000 + 'a' + ')' * 20000)), 'schema', 'schema-reject', 3000, 'regex parser recursion')
w('xsd/import_http.xsd', XS % '<xs:import namespace="urn:c" schemaLocation="http://127.0.0.1:8099/c.xsd"/><xs:element name="r"/>', 'schema', 'schema-reject', 3000, 'zero connections')
w('xsd/include_file.xsd', XS % '<xs:include schemaLocation="file:///etc/passwd"/><xs:element name="r"/>', 'schema', 'schema-reject', 3000)
w('xsd/include_self.xsd', XS % '<xs:include schemaLocation="include_self.xsd"/><xs:element name="r"/>', 'schema', 'literal', 3000, 'a cycle must end')
w('xsd/include_parent.xsd', XS % '<xs:include schemaLocation="../../../../../../etc/hostname"/><xs:element name="r"/>', 'schema', 'schema-reject', 3000, 'outside the registered folder')
w('xsd/doctype.xsd', '<!DOCTYPE xs:schema [%s]>' % ents + XS % '<xs:annotation><xs:documentation>&l9;</xs:documentation></xs:annotation><xs:element name="r"/>', 'schema', 'schema-reject', 3000)
w('xsd/recursive_type.xsd', XS % '<xs:element name="r" type="t"/><xs:complexType name="t"><xs:sequence><xs:element name="r" type="t" minOccurs="0"/></xs:sequence></xs:complexType>', 'schema', 'accept', 3000, 'then nest it 100,000 deep')
w('xsd/recursive_type_deep.xml', '<r xmlns="urn:b">' * 100000 + '</r>' * 100000, 'schema', 'reject', 1000)
w('xsd/base_cycle.xsd', XS % '<xs:complexType name="a"><xs:complexContent><xs:extension base="b"/></xs:complexContent></xs:complexType><xs:complexType name="b"><xs:complexContent><xs:extension base="a"/></xs:complexContent></xs:complexType><xs:element name="r" type="a"/>', 'schema', 'schema-reject', 3000)
w('xsd/substitution_cycle.xsd', XS % '<xs:element name="a" substitutionGroup="b"/><xs:element name="b" substitutionGroup="a"/>', 'schema', 'schema-reject', 3000)
w('xsd/keyref_quadratic.xsd', XS % '<xs:element name="r"><xs:complexType><xs:sequence><xs:element name="k" maxOccurs="unbounded"><xs:complexType><xs:attribute name="id"/><xs:attribute name="to"/></xs:complexType></xs:element></xs:sequence></xs:complexType><xs:key name="K"><xs:selector xpath="k" xmlns="urn:b"/><xs:field xpath="@id"/></xs:key></xs:element>'.replace('xpath="k" xmlns="urn:b"', 'xpath="*"'), 'schema', 'accept', 3000, 'then keyref_quadratic.xml')
w('xsd/keyref_quadratic.xml', '<r xmlns="urn:b">' + ''.join('<k id="%d"/>' % i for i in range(40000)) + '</r>', 'schema', 'accept', 2000, 'identity constraint with 40,000 keys must not be quadratic')
w('xsd/idc_crash.xml', '<r xmlns="urn:b">' + '<k/>' * 2000 + '<k id="1"/><k id="1"/>' + '</r>', 'schema', 'reject', 1000, 'CVE-2024-56171 / CVE-2025-32415 area: keys absent, then equal')
w('xsd/any_lax_everything.xsd', XS % '<xs:element name="r"><xs:complexType><xs:sequence><xs:any processContents="skip" minOccurs="0" maxOccurs="unbounded"/></xs:sequence><xs:anyAttribute processContents="skip"/></xs:complexType></xs:element>', 'schema', 'accept', 3000, 'allowed, but lint must warn: it switches validation off')
w('xsd/wide_enum.xsd', XS % ('<xs:element name="r"><xs:simpleType><xs:restriction base="xs:string">' + ''.join('<xs:enumeration value="v%d"/>' % i for i in range(40000)) + '</xs:restriction></xs:simpleType></xs:element>'), 'schema', 'accept', 3000)
w('xsd/hijack_namespace.xsd', XS.replace('urn:b', CORE) % '<xs:element name="thread-spawned"/>', 'schema', 'schema-reject', 3000, 'a listener may not register the system namespace')
w('xsd/not_schema.xsd', '<html/>', 'schema', 'schema-reject', 3000)
w('xsd/truncated.xsd', (XS % '<xs:element name="r"/>')[:-20], 'schema', 'schema-reject', 3000)

with open(os.path.join(out, 'MANIFEST.jsonl'), 'w') as f:
    for m in M: f.write(json.dumps(m, ensure_ascii=False) + '\n')
open(os.path.join(out, 'dtd/CANARY.txt'), 'w').write('CANARY-7d1f')
print(len(M), 'files', sum(m['bytes'] for m in M), 'bytes')
