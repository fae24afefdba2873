"""Nodes of the graph of relays and twins: what each exchanges with the others.

Made of the edges of a day (`relay.analytics.spark.jobs.graph_edges`). The figures of a twin come
from its `talks` edges, those of a relay from its `hands` edges.

    period          day of the edges
    kind            twin or relay
    node            number of the twin, or domain of the relay
    sent            messages on the edges that begin here
    sent_bytes      bytes of their envelopes
    received        messages on the edges that end here
    received_bytes  bytes of their envelopes
    targets         nodes that an edge leads to from here (out-degree, including the node itself)
    sources         nodes from which an edge leads here (in-degree)
    attached        for a twin: relays it sent through or that delivered to it; for a relay: such
                    twins (edges `sends` and `delivers`)
    component       group of a twin: the smallest number of all twins that `talks` edges connect to
                    it, in either direction and through any number of other twins; null for relays
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures
from relay.analytics.spark.jobs import graph_edges
from relay.analytics.spark.jobs.graph_edges import DELIVERS, HANDS, SENDS, TALKS
from relay.analytics.spark.window import Window

TABLE: Final = "graph_nodes"

TWIN: Final = "twin"
RELAY: Final = "relay"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("kind", StringType()),
        StructField("node", StringType()),
        StructField("sent", LongType()),
        StructField("sent_bytes", LongType()),
        StructField("received", LongType()),
        StructField("received_bytes", LongType()),
        StructField("targets", LongType()),
        StructField("sources", LongType()),
        StructField("attached", LongType()),
        StructField("component", LongType()),
    ]
)

_GROUPS: Final = "period string, twin long, component long"


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each twin and relay on each day of the window."""
    edges = graph_edges.transform(events, window)
    both = F.array(_end("src", "dst", (TALKS, SENDS)), _end("dst", "src", (TALKS, DELIVERS)))
    ends = edges.select("period", "link", "messages", "bytes", F.inline(both))
    plain = F.col("link").isin(TALKS, HANDS)
    out, into = plain & (F.col("end") == "src"), plain & (F.col("end") == "dst")
    nodes = ends.groupBy("period", "kind", "node").agg(
        measures.sum_of("messages", out).alias("sent"),
        measures.sum_of("bytes", out).alias("sent_bytes"),
        measures.sum_of("messages", into).alias("received"),
        measures.sum_of("bytes", into).alias("received_bytes"),
        measures.count_of(out).alias("targets"),
        measures.count_of(into).alias("sources"),
        F.count_distinct(F.when(~plain, F.col("other"))).alias("attached"),
    )
    groups = (
        edges.where(F.col("link") == TALKS)
        .select("period", *(F.col(end).cast("long").alias(end) for end in ("src", "dst")))
        .groupBy("period")
        .applyInArrow(_groups_of_day, _GROUPS)
        .withColumn("kind", F.lit(TWIN))
        .withColumn("node", F.col("twin").cast("string"))
        .drop("twin")
    )
    alone = F.when(F.col("kind") == TWIN, F.col("node").cast("long"))
    return nodes.join(groups, ["period", "kind", "node"], "left").select(
        *SCHEMA.names[:-1], F.coalesce("component", alone).alias("component")
    )


def _end(end: str, other: str, of_twins: tuple[str, ...]) -> Column:
    """Return one end of an edge as a node, which is a twin on the links `of_twins`."""
    return F.struct(
        F.lit(end).alias("end"),
        F.when(F.col("link").isin(*of_twins), TWIN).otherwise(RELAY).alias("kind"),
        F.col(end).alias("node"),
        F.col(other).alias("other"),
    )


def _groups_of_day(edges: pa.Table) -> pa.Table:
    """Return the component of each twin of a day's edges.

    Each day is one task: joining edges with labels in Spark until nothing changes takes as many
    rounds of shuffles as a group is wide, while each edge of a day is only two numbers.
    """
    ends = np.concatenate([edges["src"].to_numpy(), edges["dst"].to_numpy()])
    twins, places = np.unique(ends, return_inverse=True)
    label = components(len(twins), *places.reshape(2, -1))
    period = pa.repeat(edges["period"][0], len(twins))
    return pa.table({"period": period, "twin": twins, "component": twins[label]})


def components(count: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return, for each of `count` nodes, the first node that edges connect it to.

    Labels only decrease, and stay inside a component; when both ends of every edge have the same
    label, the whole component has the label of its first node. Each round also gives the smaller
    label to the node that the larger label came from, and then replaces each label by the label of
    its node, so that long chains need few rounds.
    """
    label = np.arange(count)
    while (unlike := label[one] != label[other]).any():
        left, right = label[one[unlike]], label[other[unlike]]
        low = np.minimum(left, right)
        np.minimum.at(label, np.maximum(left, right), low)
        np.minimum.at(label, one[unlike], low)
        np.minimum.at(label, other[unlike], low)
        label = label[label]
    return label
