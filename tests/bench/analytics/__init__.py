"""What the rows about analytics measure with: made-up events, Spark, DuckDB, a small cluster.

Both engines are processes of their own on all cores, read the same files, and write their results
as Parquet, so that these can be compared to the row.
"""
