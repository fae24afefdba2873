-- name: leave
-- Moves messages of a guest that has left to the outbox, in the order given. Atomic, and only if
-- the guest has no session and the entry still exists: a client that signs in again finds the
-- entries that have not moved in its stream, and no message arrives by both ways. An entry is
-- removed before its copy is added, so a Redis without memory takes it too.
-- KEYS: the guest's stream, relay:sessions, the shard's stream, hash of the account, the shard's
-- lease. ARGV: session key, account, then for each entry: id, session key of its sender, source
-- twin, packed count ("0": it is only removed).
-- Returns nil if the guest has a session; else the packed count of the account, whether the shard
-- is drained, and for each entry its new id and the packed count of its source, 1 if it was only
-- removed, nil if it no longer existed.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return false end

local function payload(fields)
  for place = 1, #fields, 2 do
    if fields[place] == '_' then return fields[place + 1] end
  end
end

local total, answers = 0, {}
for place = 3, #ARGV, 4 do
  local id, from, source, packed = unpack(ARGV, place, place + 3)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  local answer = false
  if entry then
    redis.call('XDEL', KEYS[1], id)
    answer = 1
    if packed ~= '0' then
      local new = redis.call('XADD', KEYS[3], '*', '_', payload(entry[2]), 'from', from, 'for', ARGV[2])
      total = redis.call('HINCRBY', KEYS[4], 'total', packed)
      answer = {new, redis.call('HINCRBY', KEYS[4], source, packed)}
    end
  end
  answers[#answers + 1] = answer
end
return {total, redis.call('EXISTS', KEYS[5]), answers}
