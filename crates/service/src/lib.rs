//! What the server does, as state machines: authenticate, resolve, deliver, append, store, expunge, search
