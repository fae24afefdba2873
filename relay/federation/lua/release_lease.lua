-- name: release_lease
-- Releases a lease that is still ours, and leaves a record for the next holder.
-- KEYS: lease, record. ARGV: token, ids of messages that may have been accepted, life of the record
-- in seconds. Replies whether the lease was ours.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
