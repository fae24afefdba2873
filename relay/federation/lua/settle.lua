-- name: settle
-- Removes delivered entries from shards of the outbox and subtracts them from the counts: one step,
-- so an entry that is gone is never still counted. Settling an entry again changes nothing, because
-- its removal subtracted it.
-- KEYS: streams of shards and hashes of accounts.
-- ARGV: for each shard and account: index of the stream in KEYS, index of the hash, n, then n times
-- the id of an entry, its source twin and its packed count.
-- Replies how many entries existed. The first write is an XDEL, which is never refused: after it, a
-- script may continue to write even when Redis is out of memory.
local call, at, removed, taken = redis.call, 1, 0, {}
local function add(counts, field, packed)
  local before = counts[field]
  counts[field] = before and before + packed or packed
end
while ARGV[at] do
  local stream, held = KEYS[tonumber(ARGV[at])], KEYS[tonumber(ARGV[at + 1])]
  local counts, count = taken[held] or {}, tonumber(ARGV[at + 2])
  at = at + 3
  for _ = 1, count do
    if call('XDEL', stream, ARGV[at]) == 1 then
      add(counts, ARGV[at + 1], ARGV[at + 2])
      add(counts, 'total', ARGV[at + 2])
      taken[held] = counts
      removed = removed + 1
    end
    at = at + 3
  end
end
for held, counts in pairs(taken) do
  for field, packed in pairs(counts) do
    -- One count is still the text it came as; writing a number out takes longer than the rest.
    if type(packed) == 'number' then packed = string.format('%.0f', packed) end
    if call('HINCRBY', held, field, '-' .. packed) <= 0 then call('HDEL', held, field) end
  end
end
return removed
