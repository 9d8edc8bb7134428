//! An upstream: its address, its protocol and settings, and its pool of connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sluicegate_core::api::Api;
use sluicegate_core::protocols::{Serves, Targets};
use sluicegate_core::request::MemberEdits;
use sluicegate_core::usage::Dialect;

use crate::address::{Address, Addresses, Paths};
use crate::client::Client;
use crate::connect::Connector;
use crate::deadlines::Deadlines;
use crate::dial::{Dial, Lookup};
use crate::headers;
use crate::pool::PoolLimits;

/// Whether chat and completion requests to an upstream ask for a stream. What it answers is converted to what the
/// client asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Streaming {
    /// As the client asks.
    #[default]
    Auto,
    /// Always: for an upstream that only streams.
    Always,
    /// Never: for one that cannot, or does it badly.
    Never,
}

impl std::str::FromStr for Streaming {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(()),
        }
    }
}

/// How an upstream is spoken to.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// `http://` or `https://`, with the path under which the API stands (`http://host:8000/v1`).
    pub base_url: String,
    /// Which endpoints lie elsewhere below it than they usually do.
    pub paths: Paths,
    /// Set on each request, in place of the client's of the same name.
    pub headers: Vec<(Bytes, Bytes)>,
    /// Our own key for it.
    pub key: Option<Bytes>,
    /// The header that carries it: `authorization` as a bearer token, any other as it is. None: `x-api-key` to the
    /// Messages interface, otherwise `authorization`.
    pub key_header: Option<String>,
    /// What it serves.
    pub serves: Serves,
    /// How it wants requests of other protocols.
    pub targets: Targets,
    /// How the members of requests to one interface differ, whoever wrote them; an interface may be left out.
    pub edits: Vec<(Api, MemberEdits)>,
    /// Its Responses streams break the protocol: their events are made anew.
    pub repair: bool,
    /// It passes the raw text of gpt-oss models on as content.
    pub harmony: bool,
    /// How long it may take.
    pub deadlines: Deadlines,
    /// How it counts tokens; `None`: recognised from the usage objects that it sends.
    pub dialect: Option<Dialect>,
    /// It accepts `stream_options`.
    pub ask_usage: bool,
    /// Whether it is asked to stream.
    pub streaming: Streaming,
    /// Pass the client's own `Authorization` on, and to the Messages interface its `x-api-key`.
    pub forward_authorization: bool,
    /// Names of the client's headers that are passed on beside those that always are.
    pub forward_headers: Vec<String>,
    /// Names of its replies' headers that clients get beside those that they always do.
    pub reply_headers: Vec<String>,
    /// HTTP/2: by ALPN over TLS, with prior knowledge without.
    pub http2: bool,
    /// A Unix socket to connect to, whatever the host of the base URL.
    pub socket: Option<String>,
    /// A PEM file of certificates to trust in place of the public ones.
    pub ca_file: Option<String>,
    /// PEM files of our own certificate, with its chain, and its private key, where the upstream asks for one.
    pub client_certificate: Option<(String, String)>,
    /// Idle connections are closed after this. Self-hosted servers commonly close theirs after 5 s, and a request that
    /// meets that moment is lost.
    pub pool_idle: Duration,
    /// Idle connections kept.
    pub pool_max_idle: usize,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            base_url: String::new(),
            paths: Paths::default(),
            headers: Vec::new(),
            key: None,
            key_header: None,
            serves: Serves::default(),
            targets: Targets::default(),
            edits: Vec::new(),
            repair: false,
            harmony: false,
            deadlines: Deadlines::default(),
            dialect: None,
            ask_usage: true,
            streaming: Streaming::Auto,
            forward_authorization: false,
            forward_headers: Vec::new(),
            reply_headers: Vec::new(),
            http2: false,
            socket: None,
            ca_file: None,
            client_certificate: None,
            pool_idle: Duration::from_secs(4),
            pool_max_idle: 256,
        }
    }
}

/// The settings cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamError {
    /// The base URL is not an absolute http or https URL.
    BaseUrl(String),
    /// A path or the query cannot be part of a URL.
    Path,
    /// A header has an illegal name or value; the value is not repeated.
    Header(String),
    /// The key cannot be sent in a header; it is not repeated.
    Key,
    /// A header that never crosses the gateway is to be passed on.
    Crossing(String),
    /// The certificate file cannot be read.
    CaFile(String),
    /// Our own certificate or its key cannot be read, or they are no pair.
    ClientCertificate(String),
}

impl std::fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UpstreamError::BaseUrl(url) => write!(f, "'{url}' is not an http or https URL"),
            UpstreamError::Path => write!(f, "a path or the query cannot be part of a URL"),
            UpstreamError::Header(name) => {
                write!(f, "header '{name}' has an illegal name or value")
            }
            UpstreamError::Key => write!(f, "the key cannot be sent in a header"),
            UpstreamError::Crossing(name) => {
                write!(f, "header '{name}' cannot be passed on")
            }
            UpstreamError::CaFile(why) => write!(f, "the certificate file cannot be used: {why}"),
            UpstreamError::ClientCertificate(why) => {
                write!(f, "the client certificate cannot be used: {why}")
            }
        }
    }
}

impl std::error::Error for UpstreamError {}

/// An inference server and its connections. Cheap to share.
pub struct Upstream {
    /// The configured name.
    pub name: Arc<str>,
    addresses: Addresses,
    pub(crate) headers: HeaderMap,
    pub(crate) key: Option<Key>,
    pub(crate) key_header: Option<HeaderName>,
    pub(crate) serves: Serves,
    pub(crate) targets: Targets,
    edits: Vec<(Api, Edits)>,
    pub(crate) repair: bool,
    pub(crate) harmony: bool,
    pub(crate) deadlines: Deadlines,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) ask_usage: bool,
    pub(crate) streaming: Streaming,
    pub(crate) forward_authorization: bool,
    pub(crate) forward_headers: Vec<HeaderName>,
    pub(crate) reply_headers: Vec<HeaderName>,
    pub(crate) client: Client,
}

/// Our own key, in the two ways in which it goes up.
pub(crate) struct Key {
    pub(crate) plain: HeaderValue,
    pub(crate) bearer: HeaderValue,
}

impl Key {
    fn new(key: &[u8]) -> Result<Self, UpstreamError> {
        let value = |bytes: &[u8]| {
            let mut value = HeaderValue::from_bytes(bytes).map_err(|_| UpstreamError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self {
            plain: value(key)?,
            bearer: value(&[b"Bearer ", key].concat())?,
        })
    }
}

/// The edits of requests to one interface.
struct Edits {
    all: Arc<MemberEdits>,
    /// The same and no `model`, for an address that names it.
    without_model: Arc<MemberEdits>,
}

impl Edits {
    fn new(edits: MemberEdits) -> Self {
        let mut without_model = edits.clone();
        without_model.omit.push("model".into());
        Self {
            all: Arc::new(edits),
            without_model: Arc::new(without_model),
        }
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Upstream {
    /// Prepare the client; nothing is connected yet.
    pub fn new(name: &str, settings: UpstreamSettings) -> Result<Self, UpstreamError> {
        let bad_url = || UpstreamError::BaseUrl(settings.base_url.clone());
        let uri: Uri = settings.base_url.parse().map_err(|_| bad_url())?;
        if !matches!(uri.scheme_str(), Some("http" | "https"))
            || uri.host().is_none_or(str::is_empty)
        {
            return Err(bad_url());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let bad = || UpstreamError::Header(String::from_utf8_lossy(name).into_owned());
            let name = HeaderName::from_bytes(name).map_err(|_| bad())?;
            let mut value = HeaderValue::from_bytes(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let key = settings.key.as_deref().map(Key::new).transpose()?;
        let forward_headers = names(&settings.forward_headers, headers::may_go_up)?;
        let reply_headers = names(&settings.reply_headers, headers::may_go_down)?;
        let tls = tls_config(&settings)?;
        let addresses = Addresses::new(&settings.base_url, settings.paths.clone());
        let addresses = addresses.ok_or(UpstreamError::Path)?;
        let key_header = settings.key_header.as_deref().map(|name| {
            name.parse()
                .map_err(|_| UpstreamError::Header(name.to_owned()))
        });
        let edits = Api::ALL.into_iter().map(|api| {
            let own = settings.edits.iter().find(|(of, _)| *of == api);
            let own = own.map(|(_, edits)| edits.clone());
            (api, Edits::new(own.unwrap_or_default()))
        });
        Ok(Self {
            name: name.into(),
            addresses,
            headers,
            key,
            key_header: key_header.transpose()?,
            serves: settings.serves.clone(),
            targets: settings.targets.clone(),
            edits: edits.collect(),
            repair: settings.repair,
            harmony: settings.harmony,
            deadlines: settings.deadlines,
            dialect: settings.dialect,
            ask_usage: settings.ask_usage,
            streaming: settings.streaming,
            forward_authorization: settings.forward_authorization,
            forward_headers,
            reply_headers,
            client: client(&settings, tls, uri),
        })
    }
}

impl Upstream {
    /// Where a request for `model` to the endpoint at `path` goes, which may have a query of the client's. None for a
    /// model that no address can name.
    pub(crate) fn address(&self, path: &str, model: &str, streams: bool) -> Option<Address> {
        self.addresses.of(path, model, streams)
    }

    /// How members of a request to `api` differ that is sent to `address`.
    pub(crate) fn edits(&self, api: Api, address: &Address) -> Arc<MemberEdits> {
        let edits = self.edits.iter().find(|(of, _)| *of == api);
        edits.map_or_else(Arc::default, |(_, edits)| match address.names_model {
            true => Arc::clone(&edits.without_model),
            false => Arc::clone(&edits.all),
        })
    }
}

fn names(
    of: &[String],
    may_cross: impl Fn(&HeaderName) -> bool,
) -> Result<Vec<HeaderName>, UpstreamError> {
    of.iter()
        .map(|name| {
            let parsed: HeaderName = name
                .parse()
                .map_err(|_| UpstreamError::Header(name.clone()))?;
            match may_cross(&parsed) {
                true => Ok(parsed),
                false => Err(UpstreamError::Crossing(name.clone())),
            }
        })
        .collect()
}

fn tls_config(settings: &UpstreamSettings) -> Result<ClientConfig, UpstreamError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| UpstreamError::CaFile(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    match settings.ca_file.as_deref() {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let unusable = |e: &dyn std::fmt::Display| UpstreamError::CaFile(e.to_string());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|e| unusable(&e))? {
                roots
                    .add(certificate.map_err(|e| unusable(&e))?)
                    .map_err(|e| unusable(&e))?;
            }
            if roots.is_empty() {
                return Err(unusable(&"it holds no certificate"));
            }
        }
    }
    let builder = builder.with_root_certificates(roots);
    let Some((certificate_file, key_file)) = &settings.client_certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let unusable = |e: &dyn std::fmt::Display| UpstreamError::ClientCertificate(e.to_string());
    let chain = CertificateDer::pem_file_iter(certificate_file)
        .map_err(|e| unusable(&e))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| unusable(&e))?;
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| unusable(&e))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|e| unusable(&e))
}

fn client(settings: &UpstreamSettings, tls: ClientConfig, uri: Uri) -> Client {
    let deadline = settings.deadlines.connect;
    let dial = match &settings.socket {
        Some(path) => Dial::Unix(Path::new(path).into()),
        None => Dial::tcp(Lookup::new(), deadline),
    };
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let https = if settings.http2 {
        https.enable_all_versions().wrap_connector(dial)
    } else {
        https.enable_http1().wrap_connector(dial)
    };
    let plain_http2 = settings.http2 && uri.scheme_str() == Some("http");
    let limits = PoolLimits {
        idle: settings.pool_idle,
        connections: settings.pool_max_idle,
    };
    let connector = Connector::new(https, deadline, plain_http2);
    Client::new(uri, connector, settings.http2, limits)
}

/// One way to serve one model.
#[derive(Debug, Clone)]
pub struct Route {
    /// Where.
    pub upstream: Arc<Upstream>,
    /// The upstream's name for the model.
    pub model: Arc<str>,
    /// Put this name into the reply; `None` keeps the upstream's own.
    pub reply_model: Option<Arc<str>>,
    /// Where its client leaves, a reply is read on for its usage; else the upstream is closed at once.
    pub drain: bool,
}
