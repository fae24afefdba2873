-- name: claim
-- Takes a session key over: one atomic step, so of several newcomers the last claim wins.
-- KEYS: relay:sessions, a key that never exists. ARGV: session key, boot id, since, remote,
-- seconds and number of the sessions of a twin that are remembered: above it the older half goes.
-- The DEL comes first because it is never refused: a script whose first write is allowed may go on
-- writing when Redis is out of memory, and signing in must work then, so that queues can be drained.
-- With a full disk (MISCONF) it is refused like all writes: then the claim is not entered, and counts
-- by its evict alone; the holder enters itself once there is room (hold.lua). What the client gets
-- then cannot be removed either.
local wrote = redis.pcall('DEL', KEYS[2])
local refused = type(wrote) == 'table' and wrote.err
if refused and not string.find(refused, 'MISCONF', 1, true) then return wrote end
local former = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local time = redis.call('TIME')
local epoch = time[1] * 1000000 + time[2]
local stored = tonumber(string.match(former, '^%d+') or '0')
if stored >= epoch then epoch = stored + 1 end
epoch = string.format('%.0f', epoch)
if not refused then
  redis.call('HSET', KEYS[1], ARGV[1], table.concat({epoch, ARGV[2], ARGV[3], ARGV[4]}, ' '))
  local known = 'relay:known:' .. string.match(ARGV[1], '^%d*')
  redis.call('HSET', known, ARGV[1], time[1])
  redis.call('EXPIRE', known, ARGV[5])
  if redis.call('HLEN', known) > tonumber(ARGV[6]) then
    local fields, times = redis.call('HGETALL', known), {}
    for place = 2, #fields, 2 do times[#times + 1] = tonumber(fields[place]) end
    table.sort(times)
    for place = 2, #fields, 2 do
      if tonumber(fields[place]) <= times[math.floor(#times / 2)] and fields[place - 1] ~= ARGV[1] then
        redis.call('HDEL', known, fields[place - 1])
      end
    end
  end
end
redis.call('PUBLISH', 'wake:' .. ARGV[1], 'evict ' .. epoch)
return {epoch, former}
