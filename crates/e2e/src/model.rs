//! What a random client believes of one account.
