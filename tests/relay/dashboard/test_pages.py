"""Every page for every role: the permission matrix alone decides who may see it."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import URLPattern

from relay.access import matrix
from relay.access.matrix import Role
from relay.dashboard.urls import urlpatterns
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer

# Ids for the objects of pages; whether an object exists does not affect permissions.
SAMPLES = {"str": "1", "path": "1", "key": "1", "int": "1", "slug": "1", "uuid": "0" * 32}


def address(pattern: URLPattern) -> str:
    """Return a page's address with samples for its parameters."""
    path = str(pattern.pattern)
    for name, converter in pattern.pattern.converters.items():
        kind = type(converter).__name__.removesuffix("Converter").lower()
        kind = {"string": "str"}.get(kind, kind)
        path = path.replace(f"<{kind}:{name}>", SAMPLES[kind]).replace(f"<{name}>", "1")
    return f"/console/{path}"


PATTERNS = [pytest.param(each, id=str(each.name)) for each in urlpatterns]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_page_names_its_action(pattern: URLPattern) -> None:
    assert matrix.permission_of(pattern.callback.action)


@pytest.mark.django_db
def test_nobody_is_led_to_the_sign_in() -> None:
    for pattern in urlpatterns:
        answer = Client().get(address(pattern))
        assert answer.status_code == 302, pattern
        assert answer.headers["Location"].startswith("/admin/login/?next=/console/")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("role", list(Role))
def test_roles_see_what_the_matrix_says(
    role: Role, sign_in: SignIn, site_redis: RedisServer
) -> None:
    client = sign_in(role)
    for pattern in urlpatterns:
        answer = client.get(address(pattern))
        allowed = role.includes(matrix.role_of(pattern.callback.action))
        if allowed:
            assert answer.status_code in (200, 404, 409, 422), (address(pattern), answer)
        else:
            assert answer.status_code == 403, address(pattern)
            assert b"this needs the permission" in answer.content


@pytest.mark.django_db
@pytest.mark.usefixtures("no_redis")
def test_pages_stand_without_redis(sign_in: SignIn) -> None:
    client = sign_in(Role.OWNER)
    for pattern in urlpatterns:
        answer = client.get(address(pattern))
        assert answer.status_code in (200, 404, 503), address(pattern)
        assert b"Traceback" not in answer.content


@pytest.mark.django_db
def test_browsers_are_bounded(sign_in: SignIn) -> None:
    answer = sign_in(Role.VIEWER).get("/console/", secure=True)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'; style-src" in policy and "eval" not in policy
    assert "<script>" not in answer.content.decode() and "onclick=" not in answer.content.decode()
    answer = Client().get("/admin/login/", secure=True)
    assert answer.cookies["csrftoken"]["secure"]
    assert not Client().get("/admin/login/").cookies["csrftoken"]["secure"]
