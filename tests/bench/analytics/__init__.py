"""Tools of the rows about analytics: synthetic events, Spark, DuckDB, and a small cluster.

Both engines run in separate processes on all cores, read the same files, and write their results
as Parquet, so that these can be compared row by row.
"""
