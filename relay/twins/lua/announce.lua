-- name: twins_announce
-- Takes changed twins out of the shared cache, raises the version and tells the workers both.
-- KEYS: relay:twin, relay:twin:version. ARGV: channel, then the ids; none are all.
-- One script, so that a twin fetched before the change cannot enter the cache after it (fill.lua),
-- and so that the news say which version they make: who knows the one before has missed nothing.
local names = '*'
if #ARGV == 1 then
  redis.call('UNLINK', KEYS[1])
else
  redis.call('HDEL', KEYS[1], unpack(ARGV, 2))
  names = table.concat(ARGV, ',', 2)
end
redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[2]) .. ' ' .. names)
return 1
