"""OpenTelemetry traces, when `otel.endpoint` names a collector: the libraries' own instrumentation.

What operators do is traced: requests of the operator site and its API, tasks of Celery. Messages of
twins are not: the relay's own trace (`manage.py rmb_trace`) follows those, without a library on
their way. Called once by each process that takes part; it changes nothing while no endpoint is set.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from rmbsite.sections import OtelConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Span

logger = logging.getLogger(__name__)

URLS: Final = ("http.url", "http.target", "url.full", "url.query")
"""Attributes of a span that may end with a query string, by the names of both conventions."""


def set_up(settings: OtelConfig, process: str) -> bool:
    """Begin to trace this process.

    Args:
        settings: the section `otel`.
        process: what it is called there, such as `site`.

    Returns:
        Whether anything is traced.
    """
    if not settings.endpoint:
        return False
    # Imported here: most installations do without. `rmbsite.config` has seen that they are there.
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.instrumentation.django import DjangoInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    name = f"{settings.service}-{process}"
    provider = TracerProvider(
        resource=Resource.create({"service.name": name}),
        sampler=ParentBased(TraceIdRatioBased(settings.share)),
    )
    exporter = OTLPSpanExporter(endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    DjangoInstrumentor().instrument(request_hook=_forget_query)
    CeleryInstrumentor().instrument()  # type: ignore[no-untyped-call]
    logger.info("traces go to %s as %s", settings.endpoint, name)
    return True


def _forget_query(span: Span, request: Any) -> None:
    """Takes the query strings out of a span: a sign-in by OpenID Connect has its code in one."""
    if not span.is_recording():
        return
    attributes = span.attributes or {}
    for name in URLS:
        text = str(attributes.get(name, ""))
        if name == "url.query" and text:
            span.set_attribute(name, "")
        elif "?" in text:
            span.set_attribute(name, text.partition("?")[0])
