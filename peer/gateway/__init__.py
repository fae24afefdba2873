"""The gateway: programs of one host talk to twins through lists in Redis.

It speaks the queues and JSON of rmb-peer 1.5, so that programs written for that one need no change;
`app.py` tells how a message goes through.
"""
