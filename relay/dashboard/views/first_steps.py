"""The page of setup steps: those done, and those a new installation still lacks."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.dashboard import first_steps as steps
from relay.dashboard.acts import Question, act
from relay.dashboard.pages import page, render


@page("setting.view")
def first_steps(request: HttpRequest) -> HttpResponseBase:
    """List the steps with instructions."""
    found = steps.look(request)
    context = {"steps": found, "done": sum(each.done for each in found)}
    return render(request, "relay_dashboard/first_steps.html", "First steps", context)


@page("setting.view")
def dismiss(request: HttpRequest) -> HttpResponseBase:
    """Hide the reminder on the overview for this account."""

    def perform(actor: Actor) -> str:
        steps.dismiss(request.user)
        return "The overview does not show the first steps any more"

    question = Question(
        "Hide the first steps on the overview",
        "Hide",
        "For your account only. The page First steps stays in the menu.",
    )
    return act(request, question, perform, reverse("console:overview"))
