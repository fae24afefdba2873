"""The models of analytics: the ledger of the jobs, and results small enough for the database."""

from relay.analytics.models.ledger import Published, Run, RunState

__all__ = ["Published", "Run", "RunState"]
