-- name: hold
-- Confirms a holder in the directory. Atomic, so it cannot overwrite a newer session.
-- KEYS: relay:sessions, a key that never exists. ARGV: session key, epoch, boot id, since, remote.
-- Returns the epoch that holds the key now: a higher one means that this holder was evicted.
redis.call('DEL', KEYS[2])
local entry = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local stored = string.match(entry, '^%d+') or '0'
if tonumber(stored) > tonumber(ARGV[2]) then return stored end
if tonumber(stored) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], ARGV[1], table.concat({ARGV[2], ARGV[3], ARGV[4], ARGV[5]}, ' '))
  redis.call('PUBLISH', 'wake:' .. ARGV[1], 'evict ' .. ARGV[2])
end
return ARGV[2]
