-- name: letters
-- Returns the ids of the latest dead letters of some kind; their payloads stay in Redis.
-- KEYS: federation:dead. ARGV: id to begin at, maximum ids, maximum letters to examine, a relay and
-- a reason; either is empty for all.
-- Replies [id at which the next call begins, or empty after the last letter, id, ...], newest
-- first. Reads only, one letter at a time, because a page may hold many of 16 MiB; stops after
-- 64 MiB.
local start, most, looks, relay, reason = unpack(ARGV)
-- Letters of an older release have relays as their twins spell them: case and a last dot make no
-- difference.
local found, size = {''}, 0
for look = 1, tonumber(looks) + 1 do
  local entry = redis.call('XREVRANGE', KEYS[1], start, '-', 'COUNT', 1)[1]
  if not entry then return found end
  if #found > tonumber(most) or look > tonumber(looks) or size > 67108864 then
    found[1] = start
    return found
  end
  local account, why = '', ''
  for at = 1, #entry[2], 2 do
    local value = entry[2][at + 1]
    size = size + #value
    if entry[2][at] == 'for' then account = value end
    if entry[2][at] == 'why' then why = value end
  end
  local names = string.gsub('_' .. string.lower(account) .. '_', '%.?_', '_')
  local of_relay = relay == '' or string.find(names, '_' .. relay .. '_', 1, true)
  if of_relay and (reason == '' or why == reason) then
    table.insert(found, entry[1])
  end
  start = '(' .. entry[1]
end
return found
