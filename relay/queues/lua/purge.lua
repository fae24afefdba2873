-- name: purge
-- Deletes what waits for a session that is not connected. Atomic: a session that signs in gets all
-- of it or nothing.
-- KEYS: stream, share, relay:sessions, relay:purged. ARGV: session key, the lowest id that stays or
-- "" for none, messages and bytes of a queue below which shares are not counted.
-- Returns how many there were, or -1 where the session is connected.
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return -1 end
local purged = redis.call('XLEN', KEYS[1])
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1], KEYS[2])
else
  purged = redis.call('XTRIM', KEYS[1], 'MINID', ARGV[2])
  local bytes = redis.call('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 5) or 0
  if redis.call('XLEN', KEYS[1]) < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) then
    redis.call('UNLINK', KEYS[2])
  end
end
if purged > 0 then redis.call('INCRBY', KEYS[4], purged) end
return purged
