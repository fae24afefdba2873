-- name: renew_lease
-- Extends a lease that is still ours. KEYS: lease. ARGV: token, life in milliseconds.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
