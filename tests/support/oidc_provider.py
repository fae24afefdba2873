"""A small real OpenID provider on loopback: discovery, authorize, token (RS256), userinfo, keys.

It signs every user in at once, as the account that the test specifies, and checks what a provider
checks: client, secret, redirect address, code used once, PKCE.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID = "relay-site"
CLIENT_SECRET = "test secret of the relay site"
KEY_ID = "test-key-1"


class OidcProvider:
    """The provider and its next answers.

    Attributes:
        claims: claims of the account that signs in.
        info: claims that differ in the user information.
        forge: whether identity tokens are signed with a key that is not the provider's.
        identity: claims that differ in the identity token.
        instead: answers by path that replace the correct ones.
        requests: paths that were requested.
    """

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.claims: dict[str, Any] = {"sub": "1", "preferred_username": "olga", "groups": []}
        self.info: dict[str, Any] = {}
        self.identity: dict[str, Any] = {}
        self.forge = False
        self.instead: dict[str, Any] = {}
        self.requests: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._tokens: set[str] = set()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, "")

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                provider._answer(self, self.rfile.read(size).decode())

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the provider."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler, body: str) -> None:
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query or body).items()}
        self.requests.append(url.path)
        if url.path in self.instead:
            self._send(handler, 200, self.instead[url.path])
            return
        match url.path:
            case "/.well-known/openid-configuration":
                self._send(handler, 200, self._discovery())
            case "/authorize":
                self._authorize(handler, query)
            case "/token":
                self._token(handler, {**query, **_form(body)})
            case "/userinfo":
                known = handler.headers.get("Authorization", "")[7:] in self._tokens
                self._send(handler, 200 if known else 401, {**self.claims, **self.info})
            case "/keys":
                key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
                self._send(handler, 200, {"keys": [{**key, "kid": KEY_ID, "alg": "RS256"}]})
            case _:
                self._send(handler, 404, {})

    def _discovery(self) -> dict[str, Any]:
        names = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "userinfo_endpoint": "userinfo",
            "jwks_uri": "keys",
        }
        return {
            "issuer": self.issuer,
            **{name: f"{self.issuer}/{path}" for name, path in names.items()},
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def _authorize(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        if query.get("client_id") != CLIENT_ID or query.get("code_challenge_method") != "S256":
            self._send(handler, 400, {"error": "invalid_request"})
            return
        code = secrets.token_urlsafe()
        self._codes[code] = query
        back = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
        handler.send_response(302)
        handler.send_header("Location", back)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _token(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        asked = self._codes.pop(query.get("code", ""), None)
        digest = hashlib.sha256(query.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or query.get("client_secret") != CLIENT_SECRET
            or query.get("redirect_uri") != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            self._send(handler, 400, {"error": "invalid_grant"})
            return
        now = int(time.time())
        claims = {
            **self.claims,
            **{"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300},
            **self.identity,
        }
        key = self._other_key if self.forge else self._key
        access = secrets.token_urlsafe()
        self._tokens.add(access)
        answer = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": jwt.encode(claims, key, algorithm="RS256", headers={"kid": KEY_ID}),
        }
        self._send(handler, 200, answer)

    def _send(self, handler: BaseHTTPRequestHandler, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def _form(body: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(body).items()}
