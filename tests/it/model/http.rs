//! Connections to a provider: timeouts, TLS, proxies, redirects, and invalid addresses.

use std::sync::Arc;
use std::time::Duration;

use organism::model::http::{BadAddress, HttpClient, ProviderEndpoint, ProxyRules, TrustRoots};
use organism::model::{BadKey, Error, KeySource, ProviderKey, RemoteModel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::server::{KEY, Script, Server, Then, ask, call, options, read_request, remote};
use super::wires::{OPENAI, Scene};

fn hello() -> Script {
    Script::stream(&(OPENAI.events)(&Scene { text: vec!["Hello."], ..Scene::default() }))
}

#[test]
fn plain_http_leads_to_this_machine_only() {
    let cases = [
        ("https://api.example.com/v1", Ok("https://api.example.com/v1")),
        ("https://api.example.com/v1/", Ok("https://api.example.com/v1")),
        ("https://api.example.com:8443", Ok("https://api.example.com:8443")),
        ("http://localhost:11434/v1", Ok("http://localhost:11434/v1")),
        ("http://127.0.0.1:1/v1", Ok("http://127.0.0.1:1/v1")),
        ("http://127.9.9.9/", Ok("http://127.9.9.9")),
        ("http://[::1]:8080/v1", Ok("http://[::1]:8080/v1")),
        ("http://api.localhost/v1", Ok("http://api.localhost/v1")),
        ("http://LocalHost/v1", Ok("http://LocalHost/v1")),
        ("http://localhost./v1", Ok("http://localhost./v1")),
        ("http://[::ffff:127.0.0.1]/v1", Ok("http://[::ffff:127.0.0.1]/v1")),
        ("http://[::ffff:192.0.2.1]/v1", Err(BadAddress::Plain)),
        ("http://api.example.com/v1", Err(BadAddress::Plain)),
        ("http://192.0.2.1/v1", Err(BadAddress::Plain)),
        ("http://localhost.example.com/v1", Err(BadAddress::Plain)),
        ("http://127.0.0.1./v1", Err(BadAddress::Plain)),
        ("https://me:secret@api.example.com/v1", Err(BadAddress::Credentials)),
        ("https://api.example.com/v1?key=x", Err(BadAddress::Query)),
        ("https://api.example.com/v1#x", Err(BadAddress::Query)),
        ("ftp://api.example.com/v1", Err(BadAddress::Form)),
        ("api.example.com/v1", Err(BadAddress::Form)),
        ("", Err(BadAddress::Form)),
        ("https://", Err(BadAddress::Form)),
    ];
    for (text, expected) in cases {
        let found = ProviderEndpoint::parse(text, false).map(|endpoint| endpoint.to_string());
        assert_eq!(found, expected.map(str::to_owned), "{text}");
    }
    assert!(ProviderEndpoint::parse("http://192.0.2.1/v1", true).is_ok());
}

#[test]
fn a_key_is_one_visible_word_and_never_shown() {
    let source = || KeySource::Variable("X".to_owned());
    assert_eq!(ProviderKey::new(" \n", source()), Err(BadKey::Empty));
    assert_eq!(ProviderKey::new("a b", source()), Err(BadKey::Characters));
    assert_eq!(ProviderKey::new("a\r\nx: y", source()), Err(BadKey::Characters));
    assert_eq!(ProviderKey::new("schlüssel", source()), Err(BadKey::Characters));
    assert_eq!(ProviderKey::new("\u{feff}sk-1", source()), Err(BadKey::ByteOrderMark));
    assert_eq!(ProviderKey::new("\"sk-1\"\n", source()), Err(BadKey::Quoted));
    assert_eq!(ProviderKey::new("OPENAI_API_KEY=sk-1", source()), Err(BadKey::Assignment));
    assert!(ProviderKey::new("QUJD_A==", source()).is_ok(), "a key may end with `=`");
    assert_eq!(ProviderKey::new(&"x".repeat(10_000), source()), Err(BadKey::TooLong));
    let key = ProviderKey::new(&format!("{KEY}\n"), source()).unwrap();
    assert_eq!(format!("{key:?}"), "***");
    assert_eq!(key.hide_in(&format!("<{KEY}>{KEY}")), "<***>***");
    assert!(!format!("{:?}", remote(options("openai", "http://127.0.0.1:1"))).contains(KEY));
}

#[tokio::test]
async fn an_unreachable_server_is_a_typed_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let model = remote(options("openai", &format!("http://127.0.0.1:{port}/v1")));
    let error = call(&model, &ask("Hello.")).await.0.unwrap_err();
    let Error::Connect { host, .. } = &error else { panic!("{error}") };
    assert_eq!(*host, format!("127.0.0.1:{port}"));
    assert!(error.is_retried() && error.to_string().contains("base_url"), "{error}");
}

#[tokio::test]
async fn a_server_without_an_http_answer_is_named_with_what_it_did() {
    for (answer, words) in [
        ("", "closed the connection without a complete answer; see that the server runs"),
        ("HTTP/1.1 200 OK\r\nContent-", "closed the connection without a complete answer"),
        ("SSH-2.0-OpenSSH\r\n\r\n", "answered with something that is not HTTP/1.1; see"),
    ] {
        let server = Server::answering(Script::new(vec![answer.into()], Then::Close)).await;
        let model = remote(options("openai", &server.url()));
        let error = call(&model, &ask("Hello.")).await.0.unwrap_err();
        let host = server.url().replace("http://", "");
        let host = host.split('/').next().unwrap();
        assert!(error.to_string().contains(&format!("{host} {words}")), "{answer}: {error}");
        assert!(error.is_retried(), "{error}");
        assert_eq!(error.word(), "cut");
        let is_provider = !answer.starts_with("SSH");
        assert_eq!(error.is_unanswered(), is_provider, "a provider may have worked: {error}");
    }
}

/// A connection to a server that never answers the TLS handshake fails, and the error names
/// `connect_timeout`.
#[tokio::test]
async fn a_server_that_does_not_shake_hands_is_a_timeout() {
    let mut options = options("openai", "https://127.0.0.1:1/v1");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}/v1", listener.local_addr().unwrap().port());
    options.endpoint = ProviderEndpoint::parse(&url, false).unwrap();
    options.timeouts.connect = Duration::from_millis(50);
    let error = call(&remote(options), &ask("Hello.")).await.0.unwrap_err();
    assert!(error.to_string().contains("connect_timeout"), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let elsewhere = Server::answering(hello()).await;
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let header = format!("Location: {}/chat/completions\r\n", elsewhere.url());
        let server = Server::answering(Script::whole(status, &header, "")).await;
        let model = remote(options("openai", &server.url()));
        let error = call(&model, &ask("Hello.")).await.0.unwrap_err();
        assert!(matches!(error, Error::Redirected { .. }), "{error}");
        assert!(error.to_string().contains(&elsewhere.url()), "{error}");
    }
    assert!(elsewhere.requests().is_empty());
}

/// Starts a proxy that answers one request for a tunnel with `answer`, and then sends a model's
/// answer without TLS. If `answer` begins with `HTTP/1.1 200 Connected`, the proxy sends nothing
/// after it. Returns the URL of the proxy, and the request when it has arrived.
async fn proxy(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://me:pass@127.0.0.1:{}", listener.local_addr().unwrap().port());
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked = read_request(&mut stream).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        if !answer.starts_with("HTTP/1.1 200 Connected") {
            stream.write_all(&hello().bytes()).await.unwrap();
        }
        asked
    });
    (url, asked)
}

#[tokio::test]
async fn a_proxy_opens_a_tunnel_or_its_refusal_is_reported() {
    for (answer, words) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "refused the user name and the password; write both into the proxy's variable",
        ),
        (
            "HTTP/1.1 502 Bad Gateway\r\n\r\n",
            "it answered HTTP 502; see that the proxy that HTTPS_PROXY",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
        ("HTTP/1.1 200 Connected\r\n\r\n", "TLS"),
    ] {
        let (url, asked) = proxy(answer).await;
        let options = options("openai", "https://api.example.com/v1");
        let model = RemoteModel::new(
            options,
            HttpClient::new(TrustRoots::Only(Vec::new()), ProxyRules::all(&url)),
        );
        let error = call(&model, &ask("Hello.")).await.0.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(error.to_string().contains(words), "{answer}: {error}");
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("CONNECT api.example.com:443 HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic bWU6cGFzcw=="), "{asked}");
        assert!(!asked.contains(KEY), "the key goes to the server alone");
    }
}

#[tokio::test]
async fn plain_http_goes_through_a_proxy_with_its_whole_address() {
    let through = |url: &str| {
        let mut options = options("openai", "http://127.0.0.1:1");
        options.endpoint = ProviderEndpoint::parse("http://model.example.com/v1", true).unwrap();
        RemoteModel::new(options, HttpClient::new(TrustRoots::System, ProxyRules::all(url)))
    };
    let (url, asked) = proxy("").await;
    let (end, heard) = call(&through(&url), &ask("Hello.")).await;
    end.unwrap();
    assert_eq!(heard.text, "Hello.");
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("POST http://model.example.com/v1/chat/completions HTTP/1.1"));
    assert!(asked.contains("proxy-authorization: Basic bWU6cGFzcw=="), "{asked}");

    let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
    let (url, _) = proxy(refusal).await;
    let error = call(&through(&url), &ask("Hello.")).await.0.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let words = "refused the user name and the password; write both into the proxy's variable";
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test]
async fn a_server_on_this_machine_is_never_reached_through_a_proxy() {
    for host in ["127.0.0.1", "LOCALHOST"] {
        let server = Server::answering(hello()).await;
        let url = server.url().replace("127.0.0.1", host);
        let nobody = ProxyRules::all("http://127.0.0.1:1");
        let client = HttpClient::new(TrustRoots::System, nobody);
        let model = RemoteModel::new(options("openai", &url), client);
        call(&model, &ask("Hello.")).await.0.unwrap();
    }
}

/// Certificate of an authority that has signed only the server certificate of these tests.
const AUTHORITY: &[u8] = include_bytes!("../../data/model/authority.der");
const CERTIFICATE: &[u8] = include_bytes!("../../data/model/localhost.der");
const CERTIFICATE_KEY: &[u8] = include_bytes!("../../data/model/localhost-key.der");

/// Starts a TLS server named `localhost` that answers one call.
async fn secured() -> (u16, tokio::task::JoinHandle<Option<String>>) {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(CERTIFICATE_KEY));
    let mut config = builder.with_single_cert(vec![CERTIFICATE.into()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.ok()?;
        let asked = read_request(&mut stream).await?;
        stream.write_all(&hello().bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        Some(asked)
    });
    (port, asked)
}

#[tokio::test]
async fn a_server_proves_who_it_is_before_it_sees_the_key() {
    let trusted = || TrustRoots::Only(vec![CertificateDer::from(AUTHORITY)]);
    let nobody = || TrustRoots::Only(Vec::new());
    for (host, roots, is_proved) in [
        ("localhost", trusted(), true),
        ("127.0.0.1", trusted(), true),
        ("other.localhost", trusted(), false),
        ("localhost", nobody(), false),
    ] {
        let (port, asked) = secured().await;
        let options = options("openai", &format!("https://{host}:{port}/v1"));
        let model = RemoteModel::new(options, HttpClient::new(roots, ProxyRules::none()));
        let (end, heard) = call(&model, &ask("Hello.")).await;
        if is_proved {
            end.unwrap();
            assert_eq!(heard.text, "Hello.");
            assert!(asked.await.unwrap().unwrap().contains(KEY));
            continue;
        }
        let error = end.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        if host == "localhost" {
            assert!(error.to_string().ends_with("in SSL_CERT_FILE"), "{error}");
        }
        // A name that does not resolve proves nothing, but it shows that no connection was made.
        if error.to_string().contains("TLS") {
            assert_eq!(asked.await.unwrap(), None, "the key was not sent");
        } else {
            asked.abort();
        }
    }
}

/// With TLS 1.3, the server's refusal arrives after the client has sent its request. The server has
/// not read the request, so it is not charged.
#[tokio::test]
async fn a_server_that_requires_a_client_certificate_is_named_as_such() {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(AUTHORITY)).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_client_cert_verifier(verifier.build().unwrap());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(CERTIFICATE_KEY));
    let config = builder.with_single_cert(vec![CERTIFICATE.into()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let refusing = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let refused = acceptor.accept(stream).into_fallible().await;
        let Err((_, mut stream)) = refused else { panic!("the client has no certificate") };
        // A connection that is closed with unread data loses the server's alert.
        stream.read_to_end(&mut Vec::new()).await.ok();
    });

    let roots = TrustRoots::Only(vec![CertificateDer::from(AUTHORITY)]);
    let options = options("openai", &format!("https://localhost:{port}/v1"));
    let model = RemoteModel::new(options, HttpClient::new(roots, ProxyRules::none()));
    let error = call(&model, &ask("Hello.")).await.0.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().contains("requires a certificate of its client"), "{error}");
    assert!(!error.is_unanswered(), "{error}");
    refusing.await.unwrap();
}
