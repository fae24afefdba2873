"""Who somebody is: accounts, secrets, signatures, shared secrets and session tokens.

A twin is known by a 32-byte account (`ss58` is its text form). The owner has a secret text
(`seeds`), which gives a signing key (`signing`) and an encryption key (`agreement`). A client
opens a session with a `tokens` token: `tokens.parse` says who it claims to be, the caller looks
that twin's account up, `tokens.check_signature` says whether it is true.

Everything here is pure: no clock, no look-ups, no IO.
"""
