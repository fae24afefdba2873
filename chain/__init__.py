"""Access to the chain of twins through its nodes, without Django, for relay and peer.

Look-ups go through a `Rotation` of nodes (`rotation`), a `Follower` (`follower`) reports changes,
and `writes` signs and sends transactions. Each of them talks to a `Node` (`client`) over one
connection (`rpc`), and decodes the answers with `proto.chain`. Metadata is parsed by
substrate-interface (`runtime`, `events`), which is imported when it is first needed.

Everything is synchronous and bounded in time: call it from a thread.
"""
