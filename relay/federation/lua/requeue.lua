-- name: requeue
-- Puts a dead letter back into the outbox: one step, so it is never in both or in neither.
-- KEYS: federation:dead, then federation:out:<shard> of every shard, from 0.
-- ARGV: entry, prefix of the hashes that count the outbox's entries, bits of a count of messages.
-- Replies the entry's id in the outbox, or nothing if the letter is gone or cannot be put back.
-- The hash of an account cannot be named before the entry is read; Redis Cluster, where that would
-- matter, is not supported.
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then return false end
local field = {}
for at = 1, #letter[2], 2 do field[letter[2][at]] = letter[2][at + 1] end
local out = KEYS[2 + (tonumber(field['shard']) or -1)]
if not out or out == KEYS[1] or not field['_'] then return false end
local origin, account = field['from'] or '', field['for'] or ''
local deliveries = (tonumber(field['n']) or 0) + 1
local entry = redis.call('XADD', out, '*', '_', field['_'], 'from', origin, 'for', account,
  'n', deliveries)
local packed = string.format('%.0f', #field['_'] * 2 ^ tonumber(ARGV[3]) + 1)
local source = string.match(origin, '^%d+') or '0'
redis.call('HINCRBY', ARGV[2] .. account, 'total', packed)
redis.call('HINCRBY', ARGV[2] .. account, source, packed)
redis.call('XDEL', KEYS[1], letter[1])
return entry
