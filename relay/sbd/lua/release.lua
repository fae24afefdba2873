-- name: sbd-release
-- Removes an entry if it is still the caller's, and notifies all workers.
-- KEYS: sbd:keys, the set of the worker's keys. ARGV: key, entry (boot id and epoch), or a boot id
-- alone, which matches any connection of that worker.
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry or (entry ~= ARGV[2] and string.match(entry, '^%S*') ~= ARGV[2]) then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('PUBLISH', 'sbd:news', ARGV[1])
return 1
