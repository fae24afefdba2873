"""Limits of twins: a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

MAX_RELAYS: Final = 16
"""Relays one twin may list; the published gateway takes four."""

MAX_RELAYS_BYTES: Final = 1024
"""All of a twin's relays, joined by `_`, as the chain and the CSV file hold them."""

MAX_CACHED_TWINS: Final = 200_000
"""Twins in one worker's memory, some 600 bytes each; above, the oldest look-up is forgotten."""

MAX_CACHED_UNKNOWN: Final = 20_000
"""Ids known to be no twin, kept apart: guessing ids must not push out real twins."""

MAX_FETCH: Final = 256
"""Ids in one fetch from the shared cache or the source."""

MAX_PARALLEL_FETCHES: Final = 4
"""A slow fetch must not hold up the look-ups that came after it."""

GATHER_S: Final = 0.005
"""How long after the beginning of a fetch the next one begins at the earliest: in a rush of log-ins
a fetch for each cost more than all the rest of a log-in. The first miss does not wait."""

OVERTAKE_S: Final = 0.02
"""How long a miss waits for the fetch under way before another one is begun beside it. In a rush a
query in a thread takes some 10 ms, and several at once bring nothing."""

MAX_WAITING_LOOK_UPS: Final = 65_536
"""Ids waiting for a fetch in one worker; connections have their own, smaller bound."""

SHARED_LIFE_S: Final = 300
"""Age at which an entry of the shared cache is fetched again. Every change removes its entry at
once; this bounds the damage where a change could not be announced because Redis was away."""

PATIENCE_S: Final = 2.0
"""Wait for a source that is slow, when an older copy is at hand; then that is used. Signing in has
10 s."""

RETRY_S: Final = 1.0
"""While the source is away a stale twin is used, and the source asked again this often."""

REFRESH_SHARE: Final = 0.75
"""Part of its life after which a used twin is refreshed in the background, so that messages of a
busy pair never wait for a look-up."""

SHARED_TIMEOUT_S: Final = 2.0
"""Longest wait for the shared cache, its client's retries included; then the source is asked."""
