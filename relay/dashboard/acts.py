"""Doing something from a page: first a page that names the object and what will be lost, then it.

    @page("queue.purge")
    def purge(request, key):
        question = Question(f"Purge the queue of {key}", loses=("3 messages",), button="Purge")
        return act(request, question, lambda actor: ..., back=reverse("console:queues"))

GET asks, POST acts: it works without JavaScript, and with it the question opens above the page.
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
    """What is asked before something is done.

    Attributes:
        title: names what is done to which object.
        button: the verb.
        text: what it does, in a sentence.
        loses: what will be lost, each in some words; shown as a warning.
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
    """Ask, or do it and lead back.

    Args:
        perform: does it and returns the sentence that tells of it, or a page of its own.
        back: where to go then, unless `?next=` names another page of this site.
        form: what else has to be said; made of `posted(request)` by the caller, and valid when
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
    """What a form is bound to; None while it is only asked for."""
    return request.POST if request.method == "POST" else None


def _next_page(request: HttpRequest, default: str) -> str:
    """The page to return to: `?next=`, if it is one of this site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    safe = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if safe and wanted.startswith("/") else default


def _ask(
    request: HttpRequest, question: Question, back: str, form: BaseForm | None
) -> HttpResponseBase:
    """The page that asks, or the question alone where a script opens it above a page."""
    context = {"question": question, "form": form, "back": back}
    if request.headers.get("HX-Target") == "question":
        return TemplateResponse(request, "relay_dashboard/question.html", context)
    return pages.render(request, "relay_dashboard/ask.html", question.title, context)


def _tell(form: BaseForm, error: ServiceError) -> None:
    """What a service found wrong, at the fields it names."""
    fields = error.fields if isinstance(error, Invalid) else {}
    for name, text in fields.items():
        form.add_error(name if name in form.fields else None, text)
    if not fields:
        form.add_error(None, error.detail)
