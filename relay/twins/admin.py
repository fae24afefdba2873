"""Twins in the admin: keys as text, changes through `relay.twins.services`."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextInputWidget

from relay.access import faces
from relay.ops import wording
from relay.twins import services
from relay.twins.fields import (
    NO_RELAYS,
    FieldError,
    TwinValues,
    join_relays,
    own_relay,
    parse_account,
    parse_id,
    parse_pk,
    parse_relays,
    parse_signer,
)
from relay.twins.models import Twin
from relay.twins.source import split_relays


class TwinForm(forms.ModelForm):  # type: ignore[type-arg]
    """A twin with its binary keys as text."""

    account_text = forms.CharField(
        label="Account",
        max_length=70,
        widget=UnfoldAdminTextInputWidget,
        help_text="ss58 address, or 0x and 64 hexadecimal digits.",
    )
    pk_text = forms.CharField(
        label="Encryption key (pk)",
        max_length=70,
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="0x and 66 hexadecimal digits; empty: messages to the twin cannot be encrypted.",
    )

    class Meta:
        model = Twin
        fields = ("id", "relays")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        twin = self.instance
        if twin.account:
            self.initial["account_text"] = twin.address
            self.initial["pk_text"] = (
                f"0x{bytes(twin.encryption_key).hex()}" if twin.encryption_key else ""
            )
        else:
            self.initial["relays"] = self.initial.get("relays") or join_relays(own_relay())

    def clean_account_text(self) -> Any:
        return self._parsed(parse_signer, "account_text")

    def clean_pk_text(self) -> Any:
        return self._parsed(parse_pk, "pk_text")

    def clean_relays(self) -> str:
        self._parsed(parse_relays, "relays")
        return str(self.cleaned_data["relays"])

    def _parsed(self, parse: Any, name: str) -> Any:
        try:
            return parse(self.cleaned_data[name])
        except FieldError as error:
            raise forms.ValidationError(str(error)) from None

    def values(self) -> TwinValues:
        """The valid form as the services take it."""
        cleaned = self.cleaned_data
        return TwinValues(
            id=cleaned.get("id", self.instance.id),
            account=cleaned["account_text"],
            pk=cleaned["pk_text"],
            relays=parse_relays(cleaned["relays"]),
        )


@admin.register(Twin)
class TwinAdmin(faces.PendingTold, ModelAdmin):  # type: ignore[misc]
    """Twins of the registry, and those of the chain, which are changed there and shown here."""

    form = TwinForm
    fields = ("id", "account_text", "pk_text", "relays")
    list_display = ("id", "show_account", "show_pk", "show_relays", "source", "height", "updated")
    list_filter = ("source",)
    search_fields = ("id", "relays")
    search_help_text = "Twin id, account or relay"
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        # What is the chain's business is done on the chain.
        return services.in_registry() and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Twin | None = None) -> bool:
        return services.in_registry() and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Twin | None = None) -> bool:
        allowed = obj is None or services.removable(obj.source)
        return allowed and super().has_delete_permission(request, obj)

    def get_fields(self, request: HttpRequest, obj: Twin | None = None) -> tuple[str, ...]:
        if _only_shown(obj):
            return ("id", "show_address", "show_key", "relays", "height", "stale_since", "updated")
        return self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Twin | None = None) -> tuple[str, ...]:
        if _only_shown(obj):
            return self.get_fields(request, obj)
        # The id is who the twin is: another id is another twin.
        return ("id",) if obj else ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Twin], search_term: str
    ) -> tuple[QuerySet[Twin], bool]:
        term = search_term.strip()
        for field, parse in (("id", parse_id), ("account", parse_account)):
            try:
                return queryset.filter(**{field: parse(term)}), False
            except FieldError:
                continue
        return queryset.filter(relays__icontains=term) if term else queryset, False

    def save_model(self, request: HttpRequest, obj: Twin, form: TwinForm, change: bool) -> None:
        services.put_twin(form.values(), actor=faces.operator(request))
        if not form.values().relays:
            messages.warning(request, f"Twin {obj.id}: {NO_RELAYS}.")

    def delete_model(self, request: HttpRequest, obj: Twin) -> None:
        services.remove_twins([obj.id], actor=faces.operator(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Twin]) -> None:
        found = queryset.values_list("id", "source")
        ids = [twin for twin, source in found if services.removable(source)]
        services.remove_twins(ids, actor=faces.operator(request))

    @admin.display(description="account")
    def show_account(self, twin: Twin) -> str:
        return wording.cut(twin.address)

    @admin.display(description="relays", ordering="relays")
    def show_relays(self, twin: Twin) -> str:
        return wording.cut(", ".join(split_relays(twin.relays)))

    @admin.display(description="encrypts", boolean=True)
    def show_pk(self, twin: Twin) -> bool:
        return twin.encryption_key is not None

    @admin.display(description="account")
    def show_address(self, twin: Twin) -> str:
        return twin.address

    @admin.display(description="encryption key (pk)")
    def show_key(self, twin: Twin) -> str:
        return f"0x{bytes(twin.encryption_key).hex()}" if twin.encryption_key else "-"


def _only_shown(twin: Twin | None) -> bool:
    return twin is not None and not services.in_registry()
