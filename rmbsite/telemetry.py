"""OpenTelemetry traces by the libraries' own instrumentation, if `otel.endpoint` names a collector.

Actions of operators are traced: requests of the operator site and its API, and tasks of Celery.
Messages of twins are not: the relay's own trace (`manage.py rmb_trace`) follows those, without a
library in their path. Each process that is traced calls `set_up` once; it does nothing if no
endpoint is set.
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
        process: name of the process in traces, such as `site`.

    Returns:
        Whether the process is traced.
    """
    if not settings.endpoint:
        return False
    # Imported here, as most installations do not need it. `rmbsite.config` checks that it is
    # installed.
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
    """Remove the query strings from a span: that of an OpenID Connect sign-in contains its code."""
    if not span.is_recording():
        return
    attributes = span.attributes or {}
    for name in URLS:
        text = str(attributes.get(name, ""))
        if name == "url.query" and text:
            span.set_attribute(name, "")
        elif "?" in text:
            span.set_attribute(name, text.partition("?")[0])
