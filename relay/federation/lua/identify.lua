-- name: identify
-- The name of this relay towards others that know its like; the first who asks makes it.
-- The DEL comes first because it is never refused, as in take_lease.
-- KEYS: the name, a key that never exists. ARGV: one that nobody has.
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
