"""Forms of the admin say what the services refuse, at the field it is about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from django import forms

from relay.access.errors import Invalid


@contextlib.contextmanager
def in_form(form: forms.ModelForm[Any]) -> Iterator[None]:
    """What a service refuses, at the fields of a form."""
    try:
        yield
    except Invalid as error:
        for name, text in error.fields.items():
            form.add_error(name if name in form.fields else None, text)
        if not error.fields:
            form.add_error(None, error.detail)
