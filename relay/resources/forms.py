"""Forms of declared verbs: fields with their defaults and bounds, and parsing of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from relay.dashboard.acts import posted
from relay.resources.declaration import Values, Verb
from relay.resources.fields import Argument, title_of
from relay.resources.values import Choice, Flag, Number, Pairs, Text, Texts, Type

MAX_LINE_CHARS: Final = 1000
"""Maximum length of a text for which a form has a single-line input."""


def choices(kind: Type, labels: Mapping[str, str] | None) -> Sequence[tuple[str, str]]:
    """Return the values to choose from with their labels; empty if the value is typed."""
    if labels:
        return tuple(labels.items())
    if isinstance(kind, Choice):
        return [(each, each.replace("_", " ")) for each in kind.options]
    return [(each, each) for each in ("true", "false")] if isinstance(kind, Flag) else ()


class _Parsed(forms.CharField):
    """A form field whose text is parsed by a type of `relay.resources.values`."""

    def __init__(self, argument: Argument, **facts: Any) -> None:
        self.argument = argument
        kind = argument.type
        rows = 4 if isinstance(kind, Texts | Pairs) else 2
        many = rows == 4 or (isinstance(kind, Text) and kind.max_chars > MAX_LINE_CHARS)
        widget = forms.Textarea({"rows": rows}) if many else forms.TextInput()
        super().__init__(widget=widget, **facts)

    def prepare_value(self, value: Any) -> Any:
        match value:
            case dict():
                return "\n".join(f"{name}={text}" for name, text in value.items())
            case list():
                return "\n".join(value)
            case float() if value.is_integer():
                return int(value)
        return value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return "" if self.required else self.argument.default
        try:
            return self.argument.type.parse(text)
        except ValueError as error:
            raise ValidationError(str(error)) from None


def form_of(request: HttpRequest, verb: Verb, values: Values) -> forms.Form:
    """Return the form of a verb, with initial values of a row, the URL's query, or the defaults."""
    initial = {each.name: request.GET.get(each.name, each.default) for each in verb.arguments}
    form = forms.Form(posted(request), initial={**initial, **values})
    for each in verb.arguments:
        if each.asked:
            form.fields[each.name] = _form_field(each)
    return form


def _form_field(argument: Argument) -> forms.Field:
    label, told = title_of(argument), argument.description
    match argument.type:
        case Number() if argument.type.bounds:
            told = f"{told.removesuffix('.')} ({argument.type.bounds})."
        case Pairs():
            told = f"{told} One name=text on each line."
        case Texts():
            told = f"{told} One on each line."
        case Flag():
            return forms.BooleanField(label=label, help_text=told, required=False)
        case Choice():
            none = [] if argument.required else [("", "none")]
            return forms.TypedChoiceField(
                label=label, help_text=told, required=argument.required,
                choices=[*none, *choices(argument.type, argument.labels and argument.labels())],
                empty_value=argument.default,
            )  # fmt: skip
    field = _Parsed(argument, label=label, help_text=told, required=argument.required, strip=True)
    if isinstance(argument.type, Text):
        field.widget.attrs["maxlength"] = argument.type.max_chars
    return field
