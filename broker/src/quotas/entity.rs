//! Whom a quota is for, and how such entities are looked up (KIP-546).

use serde::{Deserialize, Serialize};

use super::QuotaError;

/// A name, or everybody who has no quota of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Name {
    /// On the wire: null.
    Default,
    /// This one.
    Named(String),
}

/// A user, a client id, or a client id of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entity {
    user: Option<Name>,
    client_id: Option<Name>,
}

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";

impl Entity {
    /// From the parts of a request, (type, name).
    ///
    /// # Errors
    /// `Entity`, with a sentence.
    pub fn from_parts(parts: impl IntoIterator<Item = (String, Option<String>)>) -> Result<Self, QuotaError> {
        let mut entity = Self::default();
        for (kind, name) in parts {
            let place = match kind.as_str() {
                USER => &mut entity.user,
                CLIENT_ID => &mut entity.client_id,
                IP => {
                    return Err(QuotaError::Entity(
                        "quotas of an ip are not built: known are user and client-id".to_owned(),
                    ));
                }
                _ => {
                    return Err(QuotaError::Entity(format!(
                        "unknown entity type '{kind}': known are user and client-id"
                    )));
                }
            };
            let name = match name {
                None => Name::Default,
                Some(name) if name.is_empty() => {
                    return Err(QuotaError::Entity(format!("the name of a {kind} is empty; null means the default")));
                }
                Some(name) => Name::Named(name),
            };
            if place.replace(name).is_some() {
                return Err(QuotaError::Entity(format!("the entity names two of type '{kind}'")));
            }
        }
        if entity == Self::default() {
            return Err(QuotaError::Entity("the entity is empty: name a user, a client-id, or both".to_owned()));
        }
        Ok(entity)
    }

    /// The parts, (type, name).
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, Option<String>)> {
        let part = |kind, name: &Option<Name>| {
            name.clone().map(|name| match name {
                Name::Default => (kind, None),
                Name::Named(name) => (kind, Some(name)),
            })
        };
        [part(CLIENT_ID, &self.client_id), part(USER, &self.user)].into_iter().flatten().collect()
    }

    /// The same of this user.
    #[must_use]
    pub fn with_user(mut self, name: Name) -> Self {
        self.user = Some(name);
        self
    }

    /// The same of this client id.
    #[must_use]
    pub fn with_client_id(mut self, name: Name) -> Self {
        self.client_id = Some(name);
        self
    }
}

/// What one component of a filter wants of its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// This name, or the default.
    Exactly(Name),
    /// That it is there.
    Any,
}

/// Which entities to describe: all components must match; `strict`: and there is no other part.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    user: Option<Match>,
    client_id: Option<Match>,
    /// Asks for quotas of an ip, of which there are none.
    ip: bool,
    strict: bool,
}

impl Filter {
    /// From the components of a request.
    ///
    /// # Errors
    /// `Entity`, with a sentence.
    pub fn new(components: impl IntoIterator<Item = (String, Match)>, strict: bool) -> Result<Self, QuotaError> {
        let mut filter = Self { strict, ..Self::default() };
        for (kind, wanted) in components {
            let is_second = match kind.as_str() {
                USER => filter.user.replace(wanted).is_some(),
                CLIENT_ID => filter.client_id.replace(wanted).is_some(),
                IP => std::mem::replace(&mut filter.ip, true),
                _ => {
                    return Err(QuotaError::Entity(format!(
                        "unknown entity type '{kind}': known are user and client-id"
                    )));
                }
            };
            if is_second {
                return Err(QuotaError::Entity(format!("the filter names entity type '{kind}' twice")));
            }
        }
        Ok(filter)
    }

    /// Whether an entity is asked for.
    #[must_use]
    pub fn passes(&self, entity: &Entity) -> bool {
        let passes = |wanted: &Option<Match>, name: &Option<Name>| match (wanted, name) {
            (Some(Match::Exactly(wanted)), Some(name)) => wanted == name,
            (Some(Match::Any), Some(_)) | (None, None) => true,
            (Some(_), None) => false,
            (None, Some(_)) => !self.strict,
        };
        !self.ip && passes(&self.user, &entity.user) && passes(&self.client_id, &entity.client_id)
    }
}
