-- name: sbd-bury
-- Removes some of the entries of a worker that has ended. Returns how many are left.
-- KEYS: sbd:keys, the set of the worker's keys. ARGV: boot id, maximum number to remove.
for _, key in ipairs(redis.call('SPOP', KEYS[2], ARGV[2])) do
  local entry = redis.call('HGET', KEYS[1], key)
  if entry and string.match(entry, '^%S*') == ARGV[1] then redis.call('HDEL', KEYS[1], key) end
end
return redis.call('SCARD', KEYS[2])
