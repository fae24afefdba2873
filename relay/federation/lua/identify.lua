-- name: identify
-- Returns the name of this relay towards partner relays of the same implementation; the first
-- caller stores it. The DEL comes first because it is never refused, as in take_lease.
-- KEYS: the name, a key that never exists. ARGV: a new unique name.
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
