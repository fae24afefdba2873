-- name: settle
-- Removes delivered entries from shards of the outbox and takes them off what is held: one step, so
-- an entry is never gone and still counted. Settling again changes nothing: an entry that is gone
-- was taken off before.
-- KEYS: streams of shards and hashes of accounts.
-- ARGV: for each shard, account and source twin: index of the stream in KEYS, index of the hash,
-- source twin, n, then n times the id of an entry and its packed count.
-- Replies how many entries were there. The first write is an XDEL, which is never refused: a script
-- may go on writing then, also when Redis is out of memory.
local at, removed, totals = 1, 0, {}
local function take_off(held, field, packed)
  if redis.call('HINCRBY', held, field, string.format('%.0f', -packed)) <= 0 then
    redis.call('HDEL', held, field)
  end
end
while ARGV[at] do
  local stream, held = KEYS[tonumber(ARGV[at])], KEYS[tonumber(ARGV[at + 1])]
  local source, count = ARGV[at + 2], tonumber(ARGV[at + 3])
  local packed = 0
  at = at + 4
  for _ = 1, count do
    if redis.call('XDEL', stream, ARGV[at]) == 1 then
      packed = packed + ARGV[at + 1]
      removed = removed + 1
    end
    at = at + 2
  end
  if packed > 0 then
    take_off(held, source, packed)
    totals[held] = (totals[held] or 0) + packed
  end
end
for held, packed in pairs(totals) do take_off(held, 'total', packed) end
return removed
