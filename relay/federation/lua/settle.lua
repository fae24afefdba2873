-- name: settle
-- Removes delivered entries from a shard of the outbox and takes them off what is held: one step,
-- so an entry is never gone and still counted. Settling again changes nothing: an entry that is gone
-- was taken off before.
-- KEYS: the shard's stream, then the hashes of accounts.
-- ARGV: for each account and source twin: index of the hash in KEYS, source twin, n, then n times the
-- id of an entry and its packed count.
-- Replies how many entries were there. The first write is an XDEL, which is never refused: a script
-- may go on writing then, also when Redis is out of memory.
local at, removed = 1, 0
while ARGV[at] do
  local held, source, count = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  local packed = 0
  at = at + 3
  for _ = 1, count do
    if redis.call('XDEL', KEYS[1], ARGV[at]) == 1 then
      packed = packed + ARGV[at + 1]
      removed = removed + 1
    end
    at = at + 2
  end
  if packed > 0 then
    for _, field in ipairs({'total', source}) do
      local left = redis.call('HINCRBY', held, field, string.format('%.0f', -packed))
      if left <= 0 then redis.call('HDEL', held, field) end
    end
  end
end
return removed
