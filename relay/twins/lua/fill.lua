-- name: twins_fill
-- Stores fetched twins in the shared cache, unless a change was announced since before the fetch.
-- KEYS: relay:twin, relay:twin:version. ARGV: version read before the fetch, then id, entry, ...
-- One script, so no announcement (announce.lua) can come between the comparison and the write.
if (redis.call('GET', KEYS[2]) or '0') ~= ARGV[1] then
  return 0
end
for i = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 1
