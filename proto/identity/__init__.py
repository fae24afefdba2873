"""Identities: accounts, secrets, signatures, shared secrets and session tokens.

A twin is identified by a 32-byte account (`ss58` is its text form). Its owner has a secret text
(`seeds`), from which a signing key (`signing`) and an encryption key (`agreement`) are derived. A
client opens a session with a token (`tokens`): `tokens.parse` returns the twin that it claims to
be, the caller looks up that twin's account, and `tokens.check_signature` verifies the claim.

Everything here is pure: no clock, no look-ups, no I/O.
"""
