"""The chain that twins live on, reached through its nodes; without Django, for relay and peer.

Look-ups go through a `Rotation` of nodes (`rotation`), changes come from a `Follower`
(`follower`), and `writes` signs and sends transactions. Each of them talks to a `Node` (`client`),
that is, to one connection (`rpc`), and reads what comes with `proto.chain`. Metadata is understood
by substrate-interface (`runtime`, `events`), which is imported when it is first needed.

Everything is synchronous and bounded in time: call it from a thread.
"""
