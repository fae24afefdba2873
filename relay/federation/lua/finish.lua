-- name: finish
-- Removes one entry of the outbox that is not delivered to a partner relay: it becomes a dead
-- letter, with or without a notice to its sender, or it goes to a session of this relay. One step,
-- so the entry is never in two places or in none. Does nothing if the entry no longer exists.
-- KEYS: the shard's stream, hash of the account, list of the entry's attempts, dead letters.
-- ARGV: entry, source twin, packed count, reason ('' for no dead letter), shard, maximum number of
-- dead letters, maximum bytes of dead letters, session key that gets the notice ('' for none),
-- notice, session key that gets the message itself ('' for none), life of a session's stream in
-- seconds.
-- Replies whether the entry existed. The first write is an XDEL, which is never refused.
local entry = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not entry then return 0 end
redis.call('XDEL', KEYS[1], ARGV[1])
for _, field in ipairs({'total', ARGV[2]}) do
  if redis.call('HINCRBY', KEYS[2], field, '-' .. ARGV[3]) <= 0 then
    redis.call('HDEL', KEYS[2], field)
  end
end
if ARGV[4] ~= '' then
  local fields = entry[2]
  local tries = '[' .. table.concat(redis.call('LRANGE', KEYS[3], 0, -1), ',') .. ']'
  for _, value in ipairs({'why', ARGV[4], 'shard', ARGV[5], 'entry', ARGV[1], 'tries', tries}) do
    table.insert(fields, value)
  end
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[6], '*', unpack(fields))
  local length = redis.call('XLEN', KEYS[4])
  if length > 1 and redis.call('MEMORY', 'USAGE', KEYS[4]) > tonumber(ARGV[7]) then
    redis.call('XTRIM', KEYS[4], 'MAXLEN', math.floor(length / 2))
  end
end
redis.call('DEL', KEYS[3])
local function send(session, payload)
  redis.call('XADD', 'stream:' .. session, '*', '_', payload)
  redis.call('EXPIRE', 'stream:' .. session, ARGV[11])
  redis.call('PUBLISH', 'wake:' .. session, 'new')
end
if ARGV[8] ~= '' then send(ARGV[8], ARGV[9]) end
if ARGV[10] ~= '' then
  for at = 1, #entry[2], 2 do
    if entry[2][at] == '_' then send(ARGV[10], entry[2][at + 1]) end
  end
end
return 1
