"""Bounds of twins: each is a constant with its unit and its reason."""

from __future__ import annotations

from typing import Final

MAX_RELAYS: Final = 16
"""Relays that one twin may list; the published gateway accepts four."""

MAX_RELAYS_BYTES: Final = 1024
"""Bytes of all of a twin's relays, joined by `_`, as the chain and the CSV file store them."""

MAX_CACHED_TWINS: Final = 200_000
"""Twins in one worker's memory, some 600 bytes each; beyond, the oldest look-up is dropped."""

MAX_CACHED_UNKNOWN: Final = 20_000
"""Unknown ids in one worker's memory, kept apart so that guessed ids do not push out real twins."""

MAX_FETCH: Final = 256
"""Ids in one fetch from the shared cache or the source, at most."""

MAX_PARALLEL_FETCHES: Final = 4
"""Fetches at once: a slow fetch must not delay look-ups that arrive after it."""

GATHER_S: Final = 0.005
"""Least seconds between the beginnings of two fetches: when many clients sign in at once, a fetch
for each cost more than all the rest of a sign-in. The first miss does not wait."""

OVERTAKE_S: Final = 0.02
"""Seconds that a miss waits for the fetch in progress before another fetch begins beside it. Under
load a query in a thread takes some 10 ms, and several at once are not faster."""

MAX_WAITING_LOOK_UPS: Final = 65_536
"""Ids that wait for a fetch in one worker; connections have their own, smaller bound."""

SHARED_LIFE_S: Final = 300
"""Age in seconds at which an entry of the shared cache is fetched again. Every change removes its
entry at once; this limits how long an entry is wrong if a change could not be announced because
Redis was unavailable."""

PATIENCE_S: Final = 2.0
"""Seconds to wait for a slow source before an older copy, if there is one, is used. A sign-in may
take 10 s."""

RETRY_S: Final = 1.0
"""Seconds between two queries to an unavailable source; meanwhile stale twins are used."""

REFRESH_SHARE: Final = 0.75
"""Share of its life after which a twin in use is refreshed in the background, so that messages of a
busy pair never wait for a look-up."""

SHARED_TIMEOUT_S: Final = 2.0
"""Seconds to wait for the shared cache, with its client's retries, before the source is queried."""
