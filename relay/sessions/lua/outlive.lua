-- name: outlive
-- Sets the time to live of queues, and removes empty ones of sessions that no worker holds: clients
-- that choose a new session id for each connection would leave one behind each time. The holder of
-- a session adds to its stream without checking the time to live, so a queue must not expire while
-- its session is held.
-- KEYS: relay:sessions, then queues. ARGV: time to live in seconds, then the key of each queue's
-- session.
local life = tonumber(ARGV[1])
for number = 2, #KEYS do
  local held = redis.call('HEXISTS', KEYS[1], ARGV[number]) == 1
  if not held and redis.call('XLEN', KEYS[number]) == 0 then
    redis.call('DEL', KEYS[number])
  else
    local left = redis.call('TTL', KEYS[number])
    if left == -1 or (left < life / 2 and held) then
      redis.call('EXPIRE', KEYS[number], life)
    end
  end
end
