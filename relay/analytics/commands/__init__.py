"""The verbs of `manage.py rmb_analytics`, one module each, found by its name.

    SUMMARY = "compute results of some days"      one line, for the list of verbs
    DESCRIPTION = "..."                           optional: text of the verb's `--help`
    def add_arguments(parser: ArgumentParser) -> None
    def handle(out: OutputWrapper, options: dict[str, Any]) -> None

`handle` writes its result to `out`; with `--json`, which every verb has, as one JSON document. It
writes progress to standard error. On failure it raises `AnalyticsError`.

The help imports all modules, also where the analytics packages are not installed. So no module
imports Spark, Arrow, numpy, DuckDB, or a module that does, at its top; `handle` may.
"""
