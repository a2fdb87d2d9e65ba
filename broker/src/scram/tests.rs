use weir_storage::meta::MemoryMetaStore;

use super::*;

fn upsert(mechanism: i8, iterations: i32) -> Change {
    Change::Upsert { mechanism, iterations, salt: b"salt".to_vec(), salted_password: b"salted".to_vec() }
}

#[test]
fn credentials_are_kept_and_come_back() {
    let store: Arc<dyn MetaStore> = Arc::new(MemoryMetaStore::new());
    let scram = Scram::open(Arc::clone(&store)).unwrap();
    scram.change("ann", &[upsert(1, 4096), upsert(2, 8192)]).unwrap();
    scram.change("bob/of/the/slashes", &[upsert(2, 16_384)]).unwrap();
    scram.change("ann", &[Change::Delete { mechanism: 2 }]).unwrap();

    let again = Scram::open(store).unwrap();
    assert_eq!(again.users(), ["ann", "bob/of/the/slashes"]);
    assert_eq!(again.of("ann"), Some(vec![(Mechanism::Sha256, 4096)]));
    assert_eq!(again.of("bob/of/the/slashes"), Some(vec![(Mechanism::Sha512, 16_384)]));
    again.change("ann", &[Change::Delete { mechanism: 1 }]).unwrap();
    assert_eq!(again.of("ann"), None);
}

#[test]
fn a_refused_change_changes_nothing_of_its_user() {
    let scram = Scram::open(Arc::new(MemoryMetaStore::new())).unwrap();
    scram.change("ann", &[upsert(1, 4096)]).unwrap();
    let refused = |user: &str, changes: &[Change]| scram.change(user, changes).unwrap_err();
    assert!(matches!(refused("", &[upsert(1, 4096)]), ScramError::NoName));
    assert!(matches!(refused("ann", &[upsert(2, 4096), upsert(3, 4096)]), ScramError::UnknownMechanism));
    assert!(matches!(refused("ann", &[upsert(2, 4095)]), ScramError::TooFewIterations));
    assert!(matches!(refused("ann", &[upsert(2, 16_385)]), ScramError::TooManyIterations));
    assert!(matches!(refused("ann", &[upsert(1, 5000), Change::Delete { mechanism: 1 }]), ScramError::Twice));
    assert!(matches!(refused("ann", &[Change::Delete { mechanism: 2 }]), ScramError::NotThere));
    assert_eq!(scram.of("ann"), Some(vec![(Mechanism::Sha256, 4096)]));
}

/// The example of RFC 7677, section 3: user "user", password "pencil".
#[test]
fn the_keys_are_those_of_the_rfc() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // The salt is base64 W22ZaJ0SNY7soEsUEjb6gQ==, 4096 rounds.
    let salt = [0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81];
    let mut salted = [0; 32];
    let rounds = std::num::NonZeroU32::new(4096).unwrap();
    ring::pbkdf2::derive(ring::pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, b"pencil", &mut salted);
    let credential = Credential::derive(Mechanism::Sha256, &salt, &salted, 4096);
    // The server's signature of the example's exchange proves the server key.
    let exchange = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let key = hmac::Key::new(hmac::HMAC_SHA256, &credential.server_key);
    // base64 6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=
    assert_eq!(
        hex(hmac::sign(&key, exchange.as_bytes()).as_ref()),
        "eabae24d1062db75a9451ff0b6ea7e98c8546549ff741e672d3251b2397de46e"
    );
    // The client's proof (base64 dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=) xor its signature is the client key, whose hash is the stored key.
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &credential.stored_key), exchange.as_bytes());
    let proof = [
        0x74, 0x7c, 0xdb, 0x65, 0xaa, 0x56, 0x22, 0x4e, 0x23, 0x52, 0x13, 0x7e, 0x52, 0xd7, 0xbd, 0xca, 0xd6, 0xa0,
        0xf7, 0x38, 0xdf, 0x30, 0x78, 0x2c, 0xaa, 0x69, 0xa2, 0xcf, 0xb0, 0x27, 0x75, 0x54,
    ];
    let client_key: Vec<u8> = signature.as_ref().iter().zip(proof).map(|(a, b)| a ^ b).collect();
    assert_eq!(digest::digest(&digest::SHA256, &client_key).as_ref(), credential.stored_key);
}
