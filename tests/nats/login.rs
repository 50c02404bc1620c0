//! Who we are to the broker, and over which connection: password, token, credentials file, TLS, one server of several.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use vayu_articles::outbox::{DispatchError, Handler as _, NewEvent};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};

use crate::fixtures::{Runs, options, publish, start, stop, wait_acknowledged};
use crate::support::Server;

fn publishes(options: &NatsOptions) -> Result<(), DispatchError> {
    let event = NewEvent::new("a.v1", &1).unwrap().into_event(1);
    NatsSink::new(options.clone()).unwrap().handle(&event)
}

fn outage(options: &NatsOptions, what: &str) -> String {
    let answer = publishes(options);
    let Err(DispatchError::Unavailable { reason, .. }) = answer else { panic!("{what}: {answer:?}") };
    reason
}

#[test]
fn a_password_and_a_token_in_the_address_are_decoded_and_a_wrong_one_is_an_outage() {
    let Some(server) = Server::start_with(r#"authorization { user: "us er", password: "p@s:s/w%rd" }"#) else { return };
    let as_login = |login: &str| NatsOptions::new([server.url_as(login)]);
    publishes(&as_login("us%20er:p%40s%3As%2Fw%25rd")).unwrap();
    let reason = outage(&as_login("us%20er:wrong"), "another password");
    assert!(reason.contains("authorization") && !reason.contains("wrong"), "{reason}");
    // The first address that has a login speaks for all.
    let mut several = as_login("us%20er:p%40s%3As%2Fw%25rd");
    several.servers.insert(0, "nats://127.0.0.1:1".into());
    publishes(&several).unwrap();

    let Some(server) = Server::start_with("authorization { token: \"t0ken/with+signs\" }") else { return };
    publishes(&NatsOptions::new([server.url_as("t0ken%2Fwith%2Bsigns")])).unwrap();
    outage(&NatsOptions::new([server.url()]), "no token");
}

/// A token of `issuer` about `subject`, as the servers of an operator take them.
fn jwt(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": name,
        "nats": nats,
    });
    let text = format!("{}.{}", part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

/// The file that `nsc` writes for a user.
fn credentials(path: &Path, account: &KeyPair, user: &KeyPair, seed: &str) {
    let limits = json!({ "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2 });
    let token = jwt(account, user, "worker", &limits);
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_credentials_file_logs_in_and_one_with_another_seed_does_not() {
    let (operator, system, account) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let account_claims = json!({ "type": "account", "version": 2, "limits": limits });
    let operators = jwt(
        &operator,
        &operator,
        "ours",
        &json!({ "type": "operator", "version": 2, "system_account": system.public_key() }),
    );
    let mut of_system = account_claims.clone();
    for unlimited in ["mem_storage", "disk_storage", "streams", "consumer"] {
        of_system["limits"].as_object_mut().unwrap().remove(unlimited);
    }
    let config = format!(
        "operator: {operators}\nsystem_account: {system}\nresolver: MEMORY\n\
         resolver_preload: {{\n {system}: {of_system}\n {account}: {of_account}\n}}\n",
        system = system.public_key(),
        account = account.public_key(),
        of_system = jwt(&operator, &system, "SYS", &of_system),
        of_account = jwt(&operator, &account, "SITE", &account_claims),
    );
    let Some(server) = Server::start_with(&config) else { return };
    let folder = tempfile::tempdir().unwrap();
    let [right, wrong] = ["right.creds", "wrong.creds"].map(|name| folder.path().join(name));
    let user = KeyPair::new_user();
    credentials(&right, &account, &user, &user.seed().unwrap());
    credentials(&wrong, &account, &user, &KeyPair::new_user().seed().unwrap());

    let mut options = options(&server, 0);
    outage(&options.nats, "nobody");
    options.nats.credentials = Some(wrong);
    outage(&options.nats, "a seed that is not the user's");
    options.nats.credentials = Some(folder.path().join("absent.creds"));
    assert!(outage(&options.nats, "no such file").contains("absent.creds"));
    options.nats.credentials = Some(right);
    publishes(&options.nats).unwrap();
    // A worker with the same file.
    let runs = Runs::default();
    let worker = start(folder.path(), options, runs.handler("one"));
    crate::support::wait_until("it has run", || runs.len() == 1);
    stop(&worker);
}

#[test]
fn one_server_of_several_is_enough_for_relay_and_worker() {
    let Some(server) = Server::start() else { return };
    publish(&server, 0, 0..3);
    let mut options = options(&server, 0);
    options.nats.servers = vec!["nats://127.0.0.1:1".into(), "nats://127.0.0.1:2".into(), server.url()];
    publishes(&options.nats).unwrap();
    let (folder, runs) = (tempfile::tempdir().unwrap(), Runs::default());
    let worker = start(folder.path(), options, runs.handler("one"));
    wait_acknowledged(&server, "worker-notes", 4);
    stop(&worker);
    assert_eq!(runs.numbers(), [0, 1, 2, 1]);
}

/// Certificates of an authority of our own.
struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    /// `None` without openssl, unless services are required.
    fn new() -> Option<Self> {
        let authority = Self { folder: tempfile::tempdir().unwrap() };
        let (ca, key) = (authority.file("ca.pem"), authority.file("ca.key"));
        let made = authority
            .openssl(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ours -keyout {key} -out {ca}"));
        if !made {
            let required = std::env::var("REQUIRE_SERVICES").is_ok_and(|value| value == "1");
            assert!(!required, "openssl is required and not installed");
            eprintln!("skipped: openssl is not installed");
            return None;
        }
        let names = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
        std::fs::write(authority.file("names"), names).unwrap();
        Some(authority)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn openssl(&self, arguments: &str) -> bool {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// A certificate and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let [key, request, certificate] = ["key", "csr", "pem"].map(|kind| self.file(&format!("{name}.{kind}")));
        let (ca, ca_key, names) = (self.file("ca.pem"), self.file("ca.key"), self.file("names"));
        assert!(self.openssl(&format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {key} -out {request}")));
        let by = format!("-CA {ca} -CAkey {ca_key} -CAcreateserial -extfile {names}");
        assert!(self.openssl(&format!("x509 -req -days 2 -in {request} {by} -out {certificate}")));
        (certificate, key)
    }
}

#[test]
fn tls_with_an_authority_of_ones_own_and_a_client_certificate() {
    let Some(authority) = Authority::new() else { return };
    let (certificate, key) = authority.sign("server");
    let ca = authority.file("ca.pem");
    let tls =
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true, timeout: 5 }}");
    let Some(server) = Server::start_with(&tls) else { return };
    let mut options = options(&server, 0);
    options.nats.ack_timeout = Duration::from_secs(20);
    options.nats.connect_timeout = Duration::from_secs(20);
    outage(&options.nats, "an authority nobody knows");
    options.nats.tls_required = true;
    options.nats.tls_ca = Some("/nowhere/ca.pem".into());
    outage(&options.nats, "no file of authorities");
    options.nats.tls_ca = Some(ca.into());
    outage(&options.nats, "no certificate to show");
    let (certificate, key) = authority.sign("client");
    options.nats.tls_client = Some((certificate.into(), key.into()));
    publishes(&options.nats).unwrap();
    options.nats.servers = vec![server.url().replace("nats://", "tls://")];
    publishes(&options.nats).unwrap();
    let (folder, runs) = (tempfile::tempdir().unwrap(), Runs::default());
    let worker = start(folder.path(), options, runs.handler("one"));
    crate::support::wait_until("it has run", || runs.len() == 2);
    stop(&worker);
}
