-- name: twins_announce
-- Removes changed twins from the shared cache, raises the version and notifies the workers of both.
-- KEYS: relay:twin, relay:twin:version. ARGV: channel, then the ids; without ids, all twins.
-- One script, so that a twin fetched before the change cannot enter the cache after it (fill.lua),
-- and so that each notice names the version it leads to: a worker with the version before has
-- missed none.
local names = '*'
if #ARGV == 1 then
  redis.call('UNLINK', KEYS[1])
else
  redis.call('HDEL', KEYS[1], unpack(ARGV, 2))
  names = table.concat(ARGV, ',', 2)
end
redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[2]) .. ' ' .. names)
return 1
