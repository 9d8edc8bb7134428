//! TLS towards clients.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use pkcs8::{EncryptedPrivateKeyInfo, der::Document};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The files, all PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, and the chain behind it.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// For a key that is encrypted (PKCS #8).
    pub key_password: Option<String>,
    /// TLS 1.3 only.
    pub only_13: bool,
    /// Clients must show a certificate that these authorities signed.
    pub client_authorities: Option<String>,
}

/// The files cannot be used.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

fn unusable(what: &str, why: impl fmt::Display) -> TlsError {
    TlsError(format!("{what} cannot be used: {why}"))
}

/// The server's side of TLS; `http2`: it is offered to clients (RFC 7301).
///
/// # Errors
/// Where a file cannot be read, holds nothing that is wanted, or certificate and key are no pair.
pub fn server_config(files: &TlsFiles, http2: bool) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.certificate, "cert_file")?;
    let key = key(files)?;
    let versions: &[&SupportedProtocolVersion] = if files.only_13 {
        &[&version::TLS13]
    } else {
        &[&version::TLS12, &version::TLS13]
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| unusable("min_version", error))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file, "client_ca_file")? {
                roots
                    .add(certificate)
                    .map_err(|error| unusable("client_ca_file", error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| unusable("client_ca_file", error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable("cert_file and key_file", error))?;
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

fn certificates(file: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(Path::new(file))
        .map_err(|error| unusable(what, error))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(what, error))?;
    if found.is_empty() {
        return Err(unusable(what, "it holds no certificate"));
    }
    Ok(found)
}

fn key(files: &TlsFiles) -> Result<PrivateKeyDer<'static>, TlsError> {
    let Some(password) = &files.key_password else {
        return PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unusable("key_file", error));
    };
    let pem = fs::read_to_string(&files.key).map_err(|error| unusable("key_file", error))?;
    let (label, document) =
        Document::from_pem(&pem).map_err(|error| unusable("key_file", error))?;
    if label != "ENCRYPTED PRIVATE KEY" {
        return Err(unusable(
            "key_file",
            "key_password is for an encrypted PKCS #8 key",
        ));
    }
    let encrypted = EncryptedPrivateKeyInfo::try_from(document.as_bytes())
        .map_err(|error| unusable("key_file", error))?;
    let key = encrypted
        .decrypt(password.as_bytes())
        .map_err(|_| unusable("key_file", "key_password does not open it"))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use pkcs8::pkcs5::pbes2::Parameters;
    use pkcs8::{LineEnding, PrivateKeyInfo};
    use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
    use tempfile::TempDir;

    use super::*;

    fn pair() -> CertifiedKey<KeyPair> {
        generate_simple_self_signed(["localhost".to_owned()]).unwrap()
    }

    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, text: &str) -> String {
            let path = self.0.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        }

        fn files(&self) -> TlsFiles {
            let pair = pair();
            TlsFiles {
                certificate: self.file("cert.pem", &pair.cert.pem()),
                key: self.file("key.pem", &pair.signing_key.serialize_pem()),
                key_password: None,
                only_13: false,
                client_authorities: None,
            }
        }
    }

    /// The key of `pair` as `openssl pkcs8 -topk8` writes it with a password.
    fn encrypted(pair: &CertifiedKey<KeyPair>, password: &str) -> String {
        let der = pair.signing_key.serialize_der();
        let key = PrivateKeyInfo::try_from(der.as_slice()).unwrap();
        let parameters = Parameters::pbkdf2_sha256_aes256cbc(2048, b"some salt", &[7; 16]).unwrap();
        let sealed = key.encrypt_with_params(parameters, password).unwrap();
        sealed
            .to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF)
            .unwrap()
            .to_string()
    }

    fn error(files: &TlsFiles) -> String {
        server_config(files, true).unwrap_err().to_string()
    }

    #[test]
    fn a_pair_serves_and_offers_what_it_speaks() {
        let folder = Folder::new();
        let files = folder.files();
        let both = server_config(&files, true).unwrap();
        assert_eq!(both.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        let one = server_config(&files, false).unwrap();
        assert_eq!(one.alpn_protocols, [b"http/1.1".to_vec()]);
        let authorities = TlsFiles {
            client_authorities: Some(files.certificate.clone()),
            only_13: true,
            ..files
        };
        server_config(&authorities, true).unwrap();
    }

    #[test]
    fn files_that_cannot_be_used_are_named_by_their_setting() {
        let folder = Folder::new();
        let good = folder.files();
        let missing = folder
            .0
            .path()
            .join("none.pem")
            .to_str()
            .unwrap()
            .to_owned();
        let empty = folder.file("empty.pem", "");
        let garbled = folder.file(
            "garbled.pem",
            "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
        );
        for bad in [&missing, &empty, &garbled, &good.key] {
            let certificate = TlsFiles {
                certificate: bad.clone(),
                ..good.clone()
            };
            assert!(
                error(&certificate).starts_with("cert_file cannot be used: "),
                "{bad}"
            );
            let authorities = TlsFiles {
                client_authorities: Some(bad.clone()),
                ..good.clone()
            };
            assert!(
                error(&authorities).starts_with("client_ca_file cannot be used: "),
                "{bad}"
            );
        }
        for bad in [&missing, &empty, &good.certificate] {
            let key = TlsFiles {
                key: bad.clone(),
                ..good.clone()
            };
            assert!(
                error(&key).starts_with("key_file cannot be used: "),
                "{bad}"
            );
        }
        let other = TlsFiles {
            key: folder.file("other.pem", &pair().signing_key.serialize_pem()),
            ..good
        };
        assert!(error(&other).starts_with("cert_file and key_file cannot be used: "));
    }

    #[test]
    fn an_encrypted_key_is_opened_by_its_password_alone() {
        let (folder, pair) = (Folder::new(), pair());
        let with = |password: Option<&str>| TlsFiles {
            certificate: folder.file("cert.pem", &pair.cert.pem()),
            key: folder.file("key.pem", &encrypted(&pair, "open sesame")),
            key_password: password.map(str::to_owned),
            only_13: false,
            client_authorities: None,
        };
        server_config(&with(Some("open sesame")), true).unwrap();
        let wrong = error(&with(Some("open")));
        assert_eq!(
            wrong,
            "key_file cannot be used: key_password does not open it"
        );
        assert!(error(&with(None)).starts_with("key_file cannot be used: "));
        let plain = TlsFiles {
            key_password: Some("open sesame".to_owned()),
            ..folder.files()
        };
        let plain = error(&plain);
        assert!(
            plain.ends_with("key_password is for an encrypted PKCS #8 key"),
            "{plain}"
        );
        assert!(!plain.contains("sesame"));
    }
}
