-- name: sbd-claim
-- Enters a key of an SBD client, whoever had it: one atomic step, so the last claim wins. Tells the
-- worker that had it, and all workers that the key has moved.
-- KEYS: sbd:keys, the set of the worker's keys. ARGV: key, entry (boot id and number), boot id.
local former = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[2], ARGV[1])
if former then
  local boot = string.match(former, '^%S*')
  if boot ~= ARGV[3] then
    redis.call('SREM', 'sbd:held:' .. boot, ARGV[1])
    redis.call('PUBLISH', 'sbd:to:' .. boot, 'R' .. ARGV[1])
  end
end
redis.call('PUBLISH', 'sbd:news', ARGV[1])
return former
