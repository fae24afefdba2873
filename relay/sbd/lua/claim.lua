-- name: sbd-claim
-- Enters a key of an SBD client for a connection: one atomic step, so the newest connection has it.
-- Tells the worker that had it, and all workers that the key has moved.
-- KEYS: sbd:keys, the set of the worker's keys. ARGV: key, boot id, epoch of the connection; 0: it
-- gets one, a time of Redis' clock in µs above the epoch that was entered.
-- Returns the epoch; 0: a newer connection has the key.
local former = redis.call('HGET', KEYS[1], ARGV[1])
local boot, stored = string.match(former or '', '^(%S*) (%d+)$')
stored = tonumber(stored or '0')
local epoch = tonumber(ARGV[3])
if epoch == 0 then
  local time = redis.call('TIME')
  epoch = time[1] * 1000000 + time[2]
  if stored >= epoch then epoch = stored + 1 end
elseif stored > epoch then
  return '0'
end
epoch = string.format('%.0f', epoch)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. epoch)
redis.call('SADD', KEYS[2], ARGV[1])
if boot and boot ~= ARGV[2] then
  redis.call('SREM', 'sbd:held:' .. boot, ARGV[1])
  redis.call('PUBLISH', 'sbd:to:' .. boot, 'R' .. ARGV[1])
end
redis.call('PUBLISH', 'sbd:news', ARGV[1])
return epoch
