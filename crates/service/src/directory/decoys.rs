//! What is shown of a name that nobody has: salts that differ no more often, and agree no less often, than those of accounts do; iterations and costs
//! as accounts have, whatever was configured when their passwords were set.

use whimbrel_directory::{Account, AccountKey, Address, DecoySecret};

use super::{BARE_LOGIN_DOMAINS_MAX, Running};
use crate::{
    auth::{Authenticator, Credentials, Looked, MadeUp},
    saslprep::saslprep,
};

/// Accounts that are looked at for one that has what is wanted.
const LIKE_LOOKS_MAX: usize = 64;

impl Running {
    /// Whose keys are shown to who says that it is `login`, and what is shown if there are none. An account has one salt, by its address and by its local part
    /// alone; so a local part of nobody has that of its address in one of our domains. It has it as well where two accounts have the local part and it leads to
    /// neither: that a name alone is shown an account's salt says nothing about whether it can log in.
    pub(super) fn known_or_made_up(
        &self,
        login: &str,
        authenticator: &Authenticator,
    ) -> (Option<Credentials>, MadeUp) {
        let secret = self.directory.decoy();
        let secret = secret.unwrap_or_else(|| authenticator.decoy_secret());
        let name = self.whole_name(folded(login), &secret);
        let known = self.known_by_scram(login).or_else(|| self.known(&name));
        let iterations = self.like(&name, &secret, |account| {
            let keys = account.credential.value.scram.as_ref();
            keys.map(|keys| keys.iterations)
        });
        let made_up = MadeUp {
            name,
            secret: Some(secret),
            iterations,
        };
        (known, made_up)
    }

    /// What a password is compared with that comes with a name.
    pub(super) fn looked_up(&self, login: &str, authenticator: &Authenticator) -> Looked {
        let secret = self.directory.decoy();
        let secret = secret.unwrap_or_else(|| authenticator.decoy_secret());
        let name = self.whole_name(folded(login), &secret);
        let decoy = self.like(&name, &secret, |account| {
            Some(account.credential.value.verifier.clone())
        });
        let known = self.known(login);
        Looked { known, decoy }
    }

    /// Of the account that a name of nobody is like: its password was made when others were, with the parameters of then, and so it seems. Which
    /// account, only who has the secret can tell; it is another one for few names when accounts come and go.
    fn like<T>(
        &self,
        name: &str,
        secret: &DecoySecret,
        of: impl Fn(&Account) -> Option<T>,
    ) -> Option<T> {
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher
            .update(b"whimbrel account that a name is like v1 ")
            .update(name.as_bytes());
        let mut place = AccountKey::default();
        hasher.finalize_xof().fill(&mut place);
        let mut near = self.directory.accounts_from(&place).take(LIKE_LOOKS_MAX);
        near.find_map(|(_, account)| of(account))
    }

    /// A local part with one of our domains: which, only who has the secret can tell, and it stays so when others come.
    fn whole_name(&self, name: String, secret: &DecoySecret) -> String {
        if name.contains('@') {
            return name;
        }
        let domains = self.directory.domains().take(BARE_LOGIN_DOMAINS_MAX);
        let addresses = domains.filter_map(|(domain, _)| Address::new(&name, domain).ok());
        let addresses = addresses.map(|address| address.to_string());
        let place = |address: &String| {
            let mut hasher = blake3::Hasher::new_keyed(&secret.0);
            hasher
                .update(b"whimbrel domain of a local part v1 ")
                .update(address.as_bytes());
            *hasher.finalize().as_bytes()
        };
        addresses.min_by_key(place).unwrap_or(name)
    }
}

/// A login name such that all spellings of an account's name are one: a made-up salt must differ no more often than a real one.
fn folded(login: &str) -> String {
    let prepared = saslprep(login).map_or_else(|_| login.to_owned(), |name| name.to_string());
    match Address::parse(&prepared) {
        Ok(address) => address.to_string(),
        Err(_) => prepared.to_lowercase(),
    }
}
