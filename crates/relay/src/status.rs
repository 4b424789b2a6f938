//! Enhanced status codes with their class (RFC 3463), as notifications tell them.

use core::fmt;

/// `class.subject.detail`: class 2 success, 4 temporary, 5 permanent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status {
    class: u8,
    subject: u16,
    detail: u16,
}

impl Status {
    /// A success; subject and detail at most 999.
    #[must_use]
    pub const fn success(subject: u16, detail: u16) -> Status {
        Status::new(2, subject, detail)
    }

    /// A temporary failure; subject and detail at most 999.
    #[must_use]
    pub const fn temporary(subject: u16, detail: u16) -> Status {
        Status::new(4, subject, detail)
    }

    /// A permanent failure; subject and detail at most 999.
    #[must_use]
    pub const fn permanent(subject: u16, detail: u16) -> Status {
        Status::new(5, subject, detail)
    }

    const fn new(class: u8, subject: u16, detail: u16) -> Status {
        assert!(
            subject <= 999 && detail <= 999,
            "a part of a status code has three digits"
        );
        Status {
            class,
            subject,
            detail,
        }
    }

    /// 2, 4 or 5.
    #[must_use]
    pub const fn class(self) -> u8 {
        self.class
    }

    /// What it is about: 1 the address, 2 the mailbox, 3 the system, 4 the network, 5 the protocol, 6 the content, 7 policy.
    #[must_use]
    pub const fn subject(self) -> u16 {
        self.subject
    }

    /// The last number.
    #[must_use]
    pub const fn detail(self) -> u16 {
        self.detail
    }

    /// Class 5.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        self.class == 5
    }

    /// The same cause as a temporary failure.
    #[must_use]
    pub const fn as_temporary(self) -> Status {
        Status { class: 4, ..self }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.class, self.subject, self.detail)
    }
}
