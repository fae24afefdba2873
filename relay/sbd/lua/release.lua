-- name: sbd-release
-- Takes an entry out if it is still the caller's, and tells all workers.
-- KEYS: sbd:keys, the set of the worker's keys. ARGV: key, entry.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('PUBLISH', 'sbd:news', ARGV[1])
return 1
