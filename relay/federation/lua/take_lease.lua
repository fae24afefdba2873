-- name: take_lease
-- Takes the lease of a shard, if nobody has it. Replies nothing where somebody has; else what the
-- one before left: the ids of messages that may have been accepted, or '?' where it died before it
-- could say; and the id of the newest message.
-- KEYS: lease, what the one before left, the shard's stream.
-- ARGV: token, life in milliseconds, life of what is left in seconds.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
local left = redis.call('GET', KEYS[2]) or ''
redis.call('SET', KEYS[2], '?', 'EX', ARGV[3])
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
return {left, newest and newest[1] or '0-0'}
