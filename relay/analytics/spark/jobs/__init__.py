"""The jobs: a module for each table of results, with one pure `transform`.

    TABLE = "twin_hour"                      its name
    SCHEMA = StructType([...])               its columns, the first one `period`
    def transform(events, window, ...) -> DataFrame

`events` are rows of `relay.analytics.spark.schema.READ` of the window and the margins the job names
(`relay.analytics.spark.catalogue`), `window` the days whose rows are wanted; a row belongs to the
day (or month) `period` tells.
"""
