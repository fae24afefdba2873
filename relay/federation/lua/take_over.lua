-- name: take_over
-- Moves one entry of the reference relay's outbox into ours: one step, and only if it exists, so
-- two callers at the same time move it once.
-- KEYS: relay.federation.stream, the shard's stream, hash of the account.
-- ARGV: entry, envelope, session key of the sender, account, source twin, packed count.
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', '_', ARGV[2], 'from', ARGV[3], 'for', ARGV[4])
redis.call('HINCRBY', KEYS[3], 'total', ARGV[6])
redis.call('HINCRBY', KEYS[3], ARGV[5], ARGV[6])
return 1
