-- name: release_lease
-- Gives a lease back that is still ours, and tells the next one what to be careful with.
-- KEYS: lease, what is left. ARGV: token, ids of messages that may have been accepted, life of that
-- in seconds. Replies whether it was ours.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
