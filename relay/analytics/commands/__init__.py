"""The verbs of `manage.py rmb_analytics`: a module each, found by its name.

    SUMMARY = "compute results of some days"      one line, for the list of verbs
    DESCRIPTION = "..."                           optional: what `--help` of the verb shows
    def add_arguments(parser: ArgumentParser) -> None
    def handle(out: OutputWrapper, options: dict[str, Any]) -> None

`handle` writes what it found to `out`, with `--json` (which every verb has) as one JSON document,
and progress to standard error. It ends with `AnalyticsError` when something is wrong.

All modules are imported to show the help, also where the analytics packages are not installed: so
none imports Spark, Arrow, numpy, DuckDB or a module that does at its top, but in `handle`.
"""
