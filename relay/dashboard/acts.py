"""Actions of pages: a question names the object and what will be lost; its answer runs the action.

    @page("queue.purge")
    def purge(request, key):
        question = Question(f"Purge the queue of {key}", loses=("3 messages",), button="Purge")
        return act(request, question, lambda actor: ..., back=reverse("console:queues"))

GET shows the question, POST runs the action. This works without JavaScript; with it, the question
opens above the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib import messages
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponseRedirect, QueryDict
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.http import url_has_allowed_host_and_scheme

from relay.access import faces
from relay.access.actor import Actor
from relay.access.errors import Denied, Invalid, ServiceError
from relay.dashboard import pages


@dataclass(frozen=True, slots=True)
class Question:
    """The question shown before an action.

    Attributes:
        title: the action and its object.
        button: the verb on the button.
        text: what the action does, in a sentence.
        loses: what will be lost, each in a few words; shown as a warning.
    """

    title: str
    button: str
    text: str = ""
    loses: tuple[str, ...] = ()
    danger: bool = False


def act(
    request: HttpRequest,
    question: Question,
    perform: Callable[[Actor], str | HttpResponseBase],
    back: str,
    form: BaseForm | None = None,
) -> HttpResponseBase:
    """Show the question, or run the action and redirect.

    Args:
        perform: function that runs the action, and returns a sentence about the result, or a page.
        back: address to redirect to, unless `?next=` names another page of this site.
        form: form for further input. The caller creates it from `posted(request)`; it is valid when
            `perform` is called.
    """
    back = _next_page(request, back)
    if request.method == "POST" and (form is None or form.is_valid()):
        try:
            done = perform(faces.operator(request))
            if not isinstance(done, str):
                return done
            messages.success(request, done)
            faces.tell_pending(request)
            return HttpResponseRedirect(back)
        except Denied:
            raise
        except ServiceError as error:
            if form is None:
                messages.error(request, error.detail)
                return HttpResponseRedirect(back)
            _tell(form, error)
    return _ask(request, question, back, form)


def posted(request: HttpRequest) -> QueryDict | None:
    """Return the data to bind a form to; None while the question is only shown."""
    return request.POST if request.method == "POST" else None


def _next_page(request: HttpRequest, default: str) -> str:
    """Return the page to redirect to: `?next=`, if it is a page of this site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    safe = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if safe and wanted.startswith("/") else default


def _ask(
    request: HttpRequest, question: Question, back: str, form: BaseForm | None
) -> HttpResponseBase:
    """Return the page with the question, or only the question if a script opens it above a page."""
    context = {"question": question, "form": form, "back": back}
    if request.headers.get("HX-Target") == "question":
        return TemplateResponse(request, "relay_dashboard/question.html", context)
    return pages.render(request, "relay_dashboard/ask.html", question.title, context)


def _tell(form: BaseForm, error: ServiceError) -> None:
    """Add an error of a service to the form, at the fields that it names."""
    fields = error.fields if isinstance(error, Invalid) else {}
    for name, text in fields.items():
        form.add_error(name if name in form.fields else None, text)
    if not fields:
        form.add_error(None, error.detail)
