-- name: take_lease
-- Takes the lease of a shard, if nobody has it. Replies nothing where somebody has; else what the
-- one before left: the ids of messages that may have been accepted, or '?' where it died before it
-- could say; and the id of the newest message.
-- The DEL comes first because it is never refused: a script whose first write is allowed may go on
-- writing when Redis is out of memory, and draining the outbox is what makes room then.
-- KEYS: lease, what the one before left, the shard's stream, a key that never exists.
-- ARGV: token, life in milliseconds, life of what is left in seconds.
redis.call('DEL', KEYS[4])
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local left = redis.call('GET', KEYS[2]) or ''
redis.call('SET', KEYS[2], '?', 'EX', ARGV[3])
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
return {left, newest and newest[1] or '0-0'}
