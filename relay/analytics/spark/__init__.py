"""The data pipeline: code that runs on Spark's driver and executors.

This package is sent to the executors of a cluster, so its modules import neither Django nor other
packages of the project.
"""
