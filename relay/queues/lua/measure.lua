-- name: measure
-- One bounded step of a walk over all queues. Reads only; a queue that appears or disappears
-- between two steps may be found or not, and a queue may be found twice.
-- KEYS: relay:sessions. ARGV: cursor, pattern of the streams, keys per step, wanted value: twin,
-- messages, size, oldest, newest or extent (messages, oldest and newest, with spaces between); 1 or
-- 0 for sessions that are connected or are not, else "".
-- Returns the next cursor, then the session key and the value of each queue that holds messages.
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'stream')
local found, what, wanted = {step[1]}, ARGV[4], tonumber(ARGV[5])
for _, name in ipairs(step[2]) do
  local key, value = string.sub(name, 8), redis.call('XLEN', name)
  if value > 0 and (not wanted or redis.call('HEXISTS', KEYS[1], key) == wanted) then
    if what == 'twin' then
      value = string.match(key, '^%d+') or '0'
    elseif what == 'size' then
      value = redis.call('MEMORY', 'USAGE', name, 'SAMPLES', 5)
    elseif what == 'oldest' then
      value = redis.call('XRANGE', name, '-', '+', 'COUNT', 1)[1][1]
    elseif what == 'newest' then
      value = redis.call('XREVRANGE', name, '+', '-', 'COUNT', 1)[1][1]
    elseif what == 'extent' then
      local first = redis.call('XRANGE', name, '-', '+', 'COUNT', 1)[1][1]
      local last = redis.call('XREVRANGE', name, '+', '-', 'COUNT', 1)[1][1]
      value = value .. ' ' .. first .. ' ' .. last
    end
    found[#found + 1] = key
    found[#found + 1] = value
  end
end
return found
