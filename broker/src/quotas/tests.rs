use weir_storage::meta::MemoryMetaStore;

use super::*;

fn entity(parts: &[(&str, Option<&str>)]) -> Entity {
    Entity::from_parts(parts.iter().map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned)))).unwrap()
}

fn set(quotas: &Quotas, parts: &[(&str, Option<&str>)], key: &str, value: f64) {
    quotas.alter(entity(parts), &[(key.to_owned(), Some(value))], false).unwrap();
}

fn open() -> Quotas {
    Quotas::open(Arc::new(MemoryMetaStore::new())).unwrap()
}

#[test]
fn a_client_over_its_rate_is_throttled_until_it_is_within_it_again() {
    let quotas = open();
    let start = Instant::now();
    assert_eq!(quotas.charge(Limit::ProducerBytes, "app", 1 << 30, start), Duration::ZERO, "no quota");
    set(&quotas, &[("client-id", Some("app"))], "producer_byte_rate", 1000.0);
    assert_eq!(quotas.charge(Limit::ProducerBytes, "app", 1000, start), Duration::ZERO, "a second's worth at once");
    assert_eq!(quotas.charge(Limit::ProducerBytes, "app", 500, start), Duration::from_millis(500));
    assert_eq!(quotas.charge(Limit::ProducerBytes, "app", 0, start + Duration::from_millis(500)), Duration::ZERO);
    assert_eq!(quotas.charge(Limit::ConsumerBytes, "app", 1 << 30, start), Duration::ZERO, "the other way is free");
    assert_eq!(quotas.charge(Limit::ProducerBytes, "other", 1 << 30, start), Duration::ZERO, "so are others");
    assert_eq!(quotas.charge(Limit::ProducerBytes, "app", 1 << 30, start), bucket_longest());
}

fn bucket_longest() -> Duration {
    Duration::from_secs(11)
}

#[test]
fn the_most_particular_quota_counts() {
    let quotas = open();
    let now = Instant::now();
    let throttle = |client: &str| quotas.charge(Limit::ConsumerBytes, client, 2_000, now);
    set(&quotas, &[("client-id", None)], "consumer_byte_rate", 1000.0);
    assert_eq!(throttle("a"), Duration::from_secs(1));
    assert_eq!(throttle("b"), Duration::from_secs(1), "each client has the default for itself");
    set(&quotas, &[("client-id", Some("a"))], "consumer_byte_rate", 2000.0);
    assert_eq!(throttle("a"), Duration::ZERO);
    set(&quotas, &[("user", None)], "consumer_byte_rate", 500.0);
    assert_eq!(throttle("a"), Duration::from_secs(3), "a user's goes before a client's");
    assert_eq!(throttle("b"), Duration::from_secs(7), "and is shared by the user's clients");
    set(&quotas, &[("user", Some(ANONYMOUS)), ("client-id", Some("a"))], "consumer_byte_rate", 4000.0);
    assert_eq!(throttle("a"), Duration::ZERO);
}

#[test]
fn quotas_come_back_after_a_restart_and_are_removed() {
    let store: Arc<dyn MetaStore> = Arc::new(MemoryMetaStore::new());
    let quotas = Quotas::open(Arc::clone(&store)).unwrap();
    let both = [("user", Some("ann")), ("client-id", None)];
    set(&quotas, &both, "producer_byte_rate", 7.0);
    set(&quotas, &both, "consumer_byte_rate", 8.0);
    quotas.alter(entity(&both), &[("producer_byte_rate".to_owned(), None)], false).unwrap();
    let everything = Filter::new([], false).unwrap();
    let again = Quotas::open(Arc::clone(&store)).unwrap();
    assert_eq!(again.describe(&everything), [(entity(&both), vec![("consumer_byte_rate".to_owned(), 8.0)])]);
    again.alter(entity(&both), &[("consumer_byte_rate".to_owned(), None)], true).unwrap();
    assert_eq!(again.describe(&everything).len(), 1, "only validated");
    again.alter(entity(&both), &[("consumer_byte_rate".to_owned(), None)], false).unwrap();
    assert!(Quotas::open(store).unwrap().describe(&everything).is_empty());
}

#[test]
fn filters_find_what_they_name() {
    let quotas = open();
    let entities: [&[(&str, Option<&str>)]; 4] = [
        &[("user", Some("ann"))],
        &[("user", Some("ann")), ("client-id", Some("app"))],
        &[("user", None)],
        &[("client-id", Some("app"))],
    ];
    for parts in entities {
        set(&quotas, parts, "producer_byte_rate", 1.0);
    }
    let found = |components: &[(&str, Match)], strict| {
        let components = components.iter().map(|(kind, wanted)| ((*kind).to_owned(), wanted.clone()));
        let mut found: Vec<usize> = quotas
            .describe(&Filter::new(components, strict).unwrap())
            .into_iter()
            .map(|(found, _)| entities.iter().position(|parts| entity(parts) == found).unwrap())
            .collect();
        found.sort_unstable();
        found
    };
    let ann = Match::Exactly(Name::Named("ann".to_owned()));
    assert_eq!(found(&[], false), [0, 1, 2, 3]);
    assert_eq!(found(&[], true), [] as [usize; 0]);
    assert_eq!(found(&[("user", ann.clone())], false), [0, 1]);
    assert_eq!(found(&[("user", ann)], true), [0]);
    assert_eq!(found(&[("user", Match::Any)], true), [0, 2]);
    assert_eq!(found(&[("user", Match::Exactly(Name::Default))], false), [2]);
    assert_eq!(found(&[("client-id", Match::Any), ("user", Match::Any)], true), [1]);
    assert_eq!(found(&[("ip", Match::Any)], false), [] as [usize; 0]);
}

#[test]
fn what_would_not_be_enforced_is_refused_by_name() {
    let quotas = open();
    let refused = |key: &str, value| {
        quotas.alter(entity(&[("user", None)]), &[(key.to_owned(), Some(value))], false).unwrap_err().to_string()
    };
    assert!(refused("request_percentage", 10.0).contains("'request_percentage' is not built"));
    assert!(refused("producer_bytes_rate", 10.0).contains("unknown quota 'producer_bytes_rate'"));
    for value in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        assert!(refused("producer_byte_rate", value).contains("whole number"), "{value}");
    }
    let entity_error = |parts: &[(&str, Option<&str>)]| {
        Entity::from_parts(parts.iter().map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned))))
            .unwrap_err()
            .to_string()
    };
    assert!(entity_error(&[]).contains("is empty"));
    assert!(entity_error(&[("users", None)]).contains("unknown entity type 'users'"));
    assert!(entity_error(&[("ip", Some("::1"))]).contains("not built"));
    assert!(entity_error(&[("user", None), ("user", Some("a"))]).contains("two of type"));
    assert!(entity_error(&[("user", Some(""))]).contains("empty"));
}
