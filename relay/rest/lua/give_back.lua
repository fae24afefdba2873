-- name: rest_give_back
-- Removes a key if the request that took it still holds it. KEYS: the key. ARGV: its value.
-- One script, so the key of a later request, after a lease that ended, is never removed.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
