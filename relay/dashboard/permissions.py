"""A form field for choosing permissions."""

from __future__ import annotations

from typing import Any

from django import forms

from relay.access import matrix
from relay.access.actor import Actor


class PermissionsField(forms.MultipleChoiceField):
    """Permissions of the matrix; a form offers those that its actor has."""

    widget = forms.SelectMultiple

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)
        self.widget.attrs["size"] = 6


def offer_permissions(form: forms.Form, actor: Actor) -> None:
    """Offer the permissions of an actor in the field `permissions` of a form."""
    field: Any = form.fields["permissions"]
    names = sorted(name for name in matrix.all_permissions() if actor.may(name))
    field.choices = [(name, name.partition(".")[2].replace("_", " ")) for name in names]
