-- name: take_lease
-- Takes the lease of a shard if it is free. Replies nothing if it is held; otherwise the record of
-- the former holder: the ids of messages that may have been accepted, or '?' if it died before it
-- could write one; and the id of the newest message.
-- The DEL comes first because it is never refused: a script whose first write is allowed may
-- continue to write when Redis is out of memory, and draining the outbox is what frees memory then.
-- KEYS: lease, record of the former holder, the shard's stream, a key that never exists.
-- ARGV: token, life in milliseconds, life of the record in seconds.
redis.call('DEL', KEYS[4])
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local left = redis.call('GET', KEYS[2]) or ''
redis.call('SET', KEYS[2], '?', 'EX', ARGV[3])
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
return {left, newest and newest[1] or '0-0'}
