-- name: purge
-- Deletes what waits for a session that is not connected. Atomic: a session that signs in gets all
-- of it or nothing.
-- KEYS: stream, relay:sessions, relay:purged. ARGV: session key, the lowest id that stays or "" for
-- none.
-- Returns how many there were, or -1 where the session is connected.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return -1 end
local purged = redis.call('XLEN', KEYS[1])
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1])
else
  purged = redis.call('XTRIM', KEYS[1], 'MINID', ARGV[2])
end
if purged > 0 then redis.call('INCRBY', KEYS[3], purged) end
return purged
