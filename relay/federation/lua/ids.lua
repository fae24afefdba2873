-- name: ids
-- Returns the ids of the oldest entries of the outbox; their payloads stay in Redis.
-- KEYS: federation:out:<shard>, one or more. ARGV: maximum ids of each, then the first id of each.
-- Replies per key [id, ...], oldest first. Only reads, so atomicity means a single moment for all
-- shards. Reads one entry at a time, because a page of entries may hold many of 16 MiB; stops after
-- 64 MiB.
local found = {}
for shard, key in ipairs(KEYS) do
  local ids = {}
  local start, size = ARGV[shard + 1], 0
  for _ = 1, tonumber(ARGV[1]) do
    local entry = redis.call('XRANGE', key, start, '+', 'COUNT', 1)[1]
    if not entry or size > 67108864 then break end
    for at = 1, #entry[2], 2 do
      size = size + #entry[2][at + 1]
    end
    table.insert(ids, entry[1])
    start = '(' .. entry[1]
  end
  table.insert(found, ids)
end
return found
