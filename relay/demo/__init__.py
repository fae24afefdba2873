"""`make demo`: three twins, each in a process of its own, talk through the running relay.

Only the relay of `--embedded` is needed: its data folder says where it listens and holds the
secrets of the demo twins. Nothing here is used by the relay, except that its start enters the
twins into the registry.
"""
