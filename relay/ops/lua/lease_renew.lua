-- name: lease_renew
-- Extends a lease if it is still ours. KEYS: the lease. ARGV: token, life in ms.
-- One script, so the lease cannot end and be taken by another process between check and extension.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
