-- name: lease_renew
-- Prolongs a lease if it is still ours. KEYS: the lease. ARGV: token, life in ms.
-- One script, so that it cannot end and be taken by another between the look and the prolonging.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
