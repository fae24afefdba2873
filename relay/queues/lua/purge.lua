-- name: purge
-- Deletes the messages that wait for a session that is not connected. Atomic: a session that signs
-- in gets all of them or none.
-- KEYS: stream, relay:sessions, relay:purged. ARGV: session key, the lowest id that is kept or ""
-- for none.
-- Returns how many were deleted, or -1 if the session is connected.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return -1 end
local purged = redis.call('XLEN', KEYS[1])
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1])
else
  purged = redis.call('XTRIM', KEYS[1], 'MINID', ARGV[2])
end
if purged > 0 then redis.call('INCRBY', KEYS[3], purged) end
return purged
