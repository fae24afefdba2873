-- name: lease_release
-- Releases a lease if it is still ours. KEYS: the lease. ARGV: token.
-- One script, so the lease of a successor is never removed.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
