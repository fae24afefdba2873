"""Rows in every table that a backup contains, with values that are easily lost on the way.

New models are filled without being listed here; an unknown kind of field is an error.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime
from itertools import count
from typing import Any, Final

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.backends.base.operations import BaseDatabaseOperations

from proto.rmb.bounds import MAX_TWIN

TEXT: Final = 'ä\u2028\N{GRINNING FACE}\n"\\ %'
JSON: Final = {"zz": 1, "a": [1.5, None, "\u2029ü", 1e16, -0.0], "bb": {"y": True, "x": 2**53}}
"""JSON value; PostgreSQL preserves neither the order of keys nor how a number was written."""

NAMED: Final[dict[str, dict[str, Any]]] = {
    "relay_limits.defaultlimit": {"id": 1},
    "relay_analytics.origin": {"id": 1},
}
"""Values of rows that are the only ones their table accepts."""

HIGHEST: Final = {"relay_twins.Twin.id": MAX_TWIN, "relay_sessions.Session.twin": MAX_TWIN}
"""Highest values that the database accepts, where they are below those of the column type."""

PAIRED: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "relay_sessions.session": ({"protocol": "rmb", "peer": ""}, {"protocol": "sbd"}),
}
"""Values of the row with all values and of the sparse one, where fields depend on each other."""

WRITTEN_BY_OTHERS: Final = frozenset({"relay_audit.auditentry"})
"""Models whose rows are signed: these tables contain rows that other rows caused."""

_numbers = count(1)
_choices: defaultdict[str, count[int]] = defaultdict(count)
"""Index of each field's next choice, shared by all models."""


def fill(labels: list[str]) -> None:
    """Make two rows of each model: one with a value in each field, one with as few as possible.

    Args:
        labels: labels of the models, such as `relay_twins.twin`.
    """
    made: dict[type[models.Model], models.Model] = {}
    for label in labels:
        if label not in WRITTEN_BY_OTHERS:
            _make(apps.get_model(label), made)
            if label not in NAMED:
                _make(apps.get_model(label), {**made}, sparse=True)
    empty = [each for each in labels if not apps.get_model(each)._base_manager.exists()]
    assert not empty, f"nothing is in {empty}"


def _make(
    model: type[models.Model], made: dict[type[models.Model], models.Model], *, sparse: bool = False
) -> models.Model:
    if not sparse and model in made:
        return made[model]
    number = next(_numbers)
    values: dict[str, Any] = {}
    for field in model._meta.concrete_fields:
        if isinstance(field, models.AutoField) or (sparse and field.null):
            continue
        if isinstance(field, models.ForeignKey):
            target: Any = field.related_model
            if target is ContentType:
                values[field.name] = ContentType.objects.get(app_label="auth", model="user")
            else:
                one = isinstance(field, models.OneToOneField)
                values[field.name] = _make(target, made, sparse=sparse and one)
        else:
            values[field.name] = _value(field, number)
    values |= NAMED.get(model._meta.label_lower, {})
    values |= PAIRED.get(model._meta.label_lower, ({}, {}))[sparse]
    row = model._base_manager.create(**values)
    for relation in model._meta.many_to_many:
        target = relation.related_model
        existing = Permission.objects.all()[:2] if target is Permission else [_make(target, made)]
        getattr(row, relation.name).set(existing)
    made[model] = row
    return row


def _value(field: Any, number: int) -> Any:
    if field.choices:
        choices = [choice for choice, _ in field.flatchoices]
        return choices[next(_choices[str(field)]) % len(choices)]
    match field:
        case models.BooleanField():
            return number % 2 == 1
        case models.EmailField():
            return f"{number}@example.com"
        case models.CharField() | models.TextField():
            return f"{number}{TEXT}"[: field.max_length]
        case models.BinaryField():
            return bytes([number % 256, *range(256)])[: field.max_length]
        case models.IntegerField():
            _, highest = BaseDatabaseOperations.integer_field_ranges[field.get_internal_type()]
            return HIGHEST.get(str(field), highest) - number
        case models.FloatField():
            return number + 0.1
        case models.DateTimeField():
            return datetime(2026, 1, 2, 3, 4, 5, 123456 + number, UTC)
        case models.DateField():
            return date(2026, 1, 1 + number % 28)
        case models.JSONField():
            return JSON
    raise AssertionError(f"no value is known for {field!r}")
