-- name: outlive
-- Gives queues their time to live. Whoever holds a session adds to its stream without a look at that,
-- so it must not run out while the session is held; and once it is not, an empty stream must go.
-- KEYS: relay:sessions, then queues. ARGV: time to live in seconds, then the key of each queue's
-- session.
local life = tonumber(ARGV[1])
for number = 2, #KEYS do
  local left = redis.call('TTL', KEYS[number])
  if left == -1 or (left < life / 2 and redis.call('HEXISTS', KEYS[1], ARGV[number]) == 1) then
    redis.call('EXPIRE', KEYS[number], life)
  end
end
