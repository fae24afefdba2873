"""`Idempotency-Key`: a POST that is sent again does its work only once.

The key is bound to the caller, the path and the body. The first request takes it in Redis and
stores its answer there for a day, or for minutes if the caller has stored very many; a repeat gets
that answer, with `Idempotency-Replayed: true`. While the first request runs, a repeat gets 409. A
request that failed stores no answer: it changed nothing, and may be tried again. Without Redis this
cannot be guaranteed, so the answer is 503.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.crypto import salted_hmac
from redis import Redis
from redis.exceptions import RedisError

from relay.ops.redis_client import client
from relay.rest.bounds import (
    KEPT_LONG,
    KEY_LEASE_S,
    KEY_LIFE_S,
    MAX_KEY_CHARS,
    MAX_STORED_BYTES,
    SHORT_LIFE_S,
)
from relay.rest.problem import Refusal, refuse_field

logger = logging.getLogger(__name__)

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_KEPT_HEADERS: Final = ("Content-Type", "ETag", "Location")

_GIVE_BACK: Final = (Path(__file__).parent / "lua" / "give_back.lua").read_text()


def once(
    request: HttpRequest, caller: str, act: Callable[[], HttpResponseBase], *, secret: bool
) -> HttpResponseBase:
    """Run an action, or return its stored answer.

    Args:
        request: a POST.
        caller: unique name of the token or session.
        act: function that runs the action.
        secret: whether the answer contains something that must not be stored: a repeat gets 409.

    Raises:
        Refusal: the key is invalid, belongs to another request, or that request still runs.
        redis.exceptions.RedisError: Redis does not answer.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return act()
    if not (0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        raise refuse_field(
            f"header.{HEADER}", f"must be 1 to {MAX_KEY_CHARS} printable ASCII characters"
        )
    name = f"relay:rest:key:{_hash(caller, request.path, key)}"
    # A keyed hash: a body may contain a password, which must not be guessed from Redis.
    content = json.dumps([request.META.get("QUERY_STRING", ""), request.body.decode("latin-1")])
    body = salted_hmac("relay.rest.body", content, algorithm="sha256").hexdigest()
    mine = json.dumps({"run": secrets.token_hex(8), "body": body})
    redis = client()
    with redis.pipeline(transaction=True) as pipe:
        pipe.set(name, mine, nx=True, ex=KEY_LEASE_S)
        pipe.get(name)
        taken, present = pipe.execute()
    if not taken:
        return _repeat(json.loads(present), body)
    keep = False
    try:
        answer = act()
        keep = 200 <= answer.status_code < 300
    finally:
        if not keep:
            redis.eval(_GIVE_BACK, 1, name, mine)
    if keep:
        try:
            kept = json.dumps(_kept(answer, body, secret))
            redis.set(name, kept, ex=_life_s(redis, caller))
        except RedisError as error:
            # The action is done, so answer with its result; repeats get 409 while the key is held.
            logger.warning("the answer to an Idempotency-Key is not kept: %s", error)
    return answer


def _life_s(redis: Redis, caller: str) -> int:
    """Count an answer of the caller, and return the seconds for which to keep it."""
    count = f"relay:rest:keys:{_hash(caller)}:{int(time.time()) // KEY_LIFE_S}"
    with redis.pipeline(transaction=True) as pipe:
        pipe.incr(count)
        pipe.expire(count, KEY_LIFE_S)
        number = int(pipe.execute()[0])
    return KEY_LIFE_S if number <= KEPT_LONG else SHORT_LIFE_S


def _repeat(present: dict[str, Any], body: str) -> HttpResponse:
    if present["body"] != body:
        raise refuse_field(f"header.{HEADER}", "was used for a request with another body", 409)
    if "run" in present:
        raise Refusal(
            409, "the request with this Idempotency-Key still runs", headers={"Retry-After": "1"}
        )
    if present["content"] is None:
        raise Refusal(409, "this was done; its answer is not kept")
    answer = HttpResponse(present["content"], status=present["status"])
    for name, value in present["headers"].items():
        answer[name] = value
    answer[REPLAYED] = "true"
    return answer


def _kept(answer: HttpResponseBase, body: str, secret: bool) -> dict[str, Any]:
    content = None
    if isinstance(answer, HttpResponse) and not secret and len(answer.content) <= MAX_STORED_BYTES:
        content = answer.content.decode()
    headers = {name: answer[name] for name in _KEPT_HEADERS if name in answer}
    return {"body": body, "status": answer.status_code, "headers": headers, "content": content}


def _hash(*parts: str) -> str:
    document = json.dumps(parts).encode()
    return hashlib.sha256(document).hexdigest()
