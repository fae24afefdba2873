-- name: sbd-claim
-- Enters a key of an SBD client for a connection: one atomic step, so the newest connection has it.
-- Notifies the worker that had it, which may be the same one, of the epoch from which it no longer
-- has it: the new connection may be closed before its worker reads the reply. Notifies all workers
-- that the key has moved.
-- KEYS: sbd:keys, the set of the worker's keys. ARGV: key, boot id, epoch of the connection (0
-- assigns one: a time of Redis' clock in µs above the entered epoch); µs since its client signed,
-- if it is entered later because Redis was unavailable.
-- Returns the epoch; 0: a newer connection has the key.
local former = redis.call('HGET', KEYS[1], ARGV[1])
local boot, stored = string.match(former or '', '^(%S*) (%d+)$')
stored = tonumber(stored or '0')
local epoch = tonumber(ARGV[3])
if epoch == 0 then
  local time, age = redis.call('TIME'), tonumber(ARGV[4])
  epoch = time[1] * 1000000 + time[2] - age
  if stored >= epoch then
    if age > 0 and boot ~= ARGV[2] then return '0' end
    epoch = stored + 1
  end
elseif stored > epoch then
  return '0'
end
epoch = string.format('%.0f', epoch)
redis.call('SADD', KEYS[2], ARGV[1])
if former == ARGV[2] .. ' ' .. epoch then return epoch end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. epoch)
if boot then
  if boot ~= ARGV[2] then redis.call('SREM', 'sbd:held:' .. boot, ARGV[1]) end
  redis.call('PUBLISH', 'sbd:to:' .. boot, 'R' .. ARGV[1] .. epoch)
end
redis.call('PUBLISH', 'sbd:news', ARGV[1])
return epoch
