-- name: heads
-- Reads the oldest entries of the outbox without transferring their payloads from Redis.
-- KEYS: federation:out:<shard>, one or more. ARGV: entries to read in each.
-- Replies per key [length, id, account, id, account, ...], oldest first. Only reads, so atomicity
-- means a single moment for all shards. Reads one entry at a time, because a page of entries may
-- hold many of 16 MiB; stops after a mebibyte.
local found = {}
for _, key in ipairs(KEYS) do
  local heads = {redis.call('XLEN', key)}
  local start, size = '-', 0
  for _ = 1, tonumber(ARGV[1]) do
    local entry = redis.call('XRANGE', key, start, '+', 'COUNT', 1)[1]
    if not entry or size > 1048576 then break end
    local account = ''
    for at = 1, #entry[2], 2 do
      size = size + #entry[2][at + 1]
      if entry[2][at] == 'for' then account = entry[2][at + 1] end
    end
    table.insert(heads, entry[1])
    table.insert(heads, account)
    start = '(' .. entry[1]
  end
  table.insert(found, heads)
end
return found
