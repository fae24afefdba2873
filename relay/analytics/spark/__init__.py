"""The data pipeline: what runs on Spark's driver and executors.

This package is sent to the executors of a cluster, so nothing in it imports Django or another
package of the project (`relay.analytics.spark` itself apart).
"""
