"""The gateway: programs on one host exchange messages with twins through lists in Redis.

It uses the queues and JSON of rmb-peer 1.5, so that programs written for that version need no
change. `app.py` describes how a message passes through.
"""
