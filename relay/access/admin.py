"""API tokens in the admin: made for one's own account, shown once, revoked by a click."""

from __future__ import annotations

from typing import Any

from allauth.account import admin as _account_pages  # noqa: F401 - they register themselves
from allauth.account.models import EmailAddress
from allauth.mfa import admin as _mfa_pages  # noqa: F401
from allauth.mfa.models import Authenticator
from allauth.socialaccount import admin as _social_pages  # noqa: F401
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from relay.access import accounts_admin as accounts_admin
from relay.access import faces, matrix, services, tokens
from relay.access.errors import Invalid
from relay.access.models import ApiToken

# The sign-in's library has pages of its own: of what this site does not use, and of secrets.
for _model in (EmailAddress, SocialAccount, SocialApp, SocialToken, Authenticator):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)

SHOWN_ONCE = "relay_access/token_made.html"


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]
    """What is asked for a new token."""

    permissions = forms.MultipleChoiceField(
        required=False,
        choices=[(name, name) for name in sorted(matrix.all_permissions())],
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="In place of a role.",
    )
    days = forms.IntegerField(
        initial=services.DEFAULT_DAYS,
        min_value=1,
        max_value=services.MAX_DAYS,
        widget=UnfoldAdminIntegerFieldWidget,
        label="Expires in days",
    )

    class Meta:
        model = ApiToken
        fields = ("label", "role")
        widgets = {  # noqa: RUF012 - Django's own declaration
            "label": UnfoldAdminTextInputWidget,
            "role": UnfoldAdminSelectWidget,
        }

    request: HttpRequest

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        if not self.errors:
            try:
                services.check_token(**self.values(), actor=faces.operator(self.request))
            except Invalid as error:
                for name, text in error.fields.items():
                    self.add_error(name if name in self.fields else None, text)
        return found

    def values(self) -> dict[str, Any]:
        """The form as the services take it."""
        values = {
            name: self.cleaned_data[name] for name in ("label", "role", "permissions", "days")
        }
        return {**values, "account": self.request.user.get_username()}


@admin.register(ApiToken)
class ApiTokenAdmin(ModelAdmin):  # type: ignore[misc]
    """Owners only, by the matrix."""

    list_display = (
        "show_id", "label", "account", "show_may", "show_state", "expires", "last_used",
        "last_address", "created_by",
    )  # fmt: skip
    list_filter = ("role",)
    search_fields = ("public_id", "label", "account__username")
    actions = ("revoke_selected",)
    list_select_related = ("account",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # revoked ones stay: the audit log names them

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return faces.operator(request).may(matrix.permission_of("token.revoke"))

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("label", "role", "permissions", "days")
        return (
            *("show_id", "label", "account", "role", "permissions", "created", "created_by"),
            *("expires", "last_used", "last_address", "revoked"),
        )

    def get_form(
        self, request: HttpRequest, obj: ApiToken | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        return type("RequestTokenForm", (TokenForm,), {"request": request})

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        made = services.create_token(**form.values(), actor=faces.operator(request))
        obj.pk, obj.public_id = made.token.pk, made.token.public_id
        obj.made_text = made.text  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        # In this answer and nowhere else: a message would be stored in a session or a cookie.
        context = {
            **self.admin_site.each_context(request),
            "title": "New API token",
            "text": obj.made_text,  # type: ignore[attr-defined]
            "name": str(obj),
        }
        return TemplateResponse(request, SHOWN_ONCE, context, headers={"Cache-Control": "no-store"})

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        live = list(queryset.filter(revoked=None))
        with faces.in_admin(request):
            for token in live:
                services.revoke_token(token.public_id, actor=faces.operator(request))
            messages.success(request, f"{len(live)} tokens revoked")

    @admin.display(description="token")
    def show_id(self, token: ApiToken) -> str:
        return str(token)

    @admin.display(description="may")
    def show_may(self, token: ApiToken) -> str:
        return token.role or f"{len(tokens.given_to('', token.permissions))} permissions"

    @admin.display(description="state")
    def show_state(self, token: ApiToken) -> str:
        return services.state_of(token)
