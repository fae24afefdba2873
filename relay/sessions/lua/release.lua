-- name: release
-- Ends the hold of a session: removes its entry unless a newer session has replaced it, and
-- notifies those that wait for it. Atomic with the last removals when it runs inside their MULTI.
-- KEYS: relay:sessions. ARGV: session key, epoch.
local entry = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local released = 0
if string.match(entry, '^%d+') == ARGV[2] then
  released = redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.call('PUBLISH', 'wake:' .. ARGV[1], 'released ' .. ARGV[2])
return released
