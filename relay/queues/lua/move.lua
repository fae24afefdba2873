-- name: move
-- Moves entries to the queue of another session of the same twin, in the order given. Atomic, so an
-- entry is in one of the two queues even if a process is killed. Entries that no longer exist are
-- skipped, so a second run after a lost answer moves nothing twice.
-- KEYS: from stream, to stream, relay:sessions, relay:guests, the guest lease of either key. ARGV:
-- from key, to key, maximum messages, life of the stream in s, then for each entry: id, deadline in
-- unix s or 0, source twin, bytes.
-- Returns why it stopped ("" at the end of the list), entries moved, entries too old, and of those
-- moved: source twin, messages, bytes.
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return {'connected', 0, 0, {}} end
if redis.call('SISMEMBER', KEYS[4], ARGV[1]) == 1 or redis.call('EXISTS', KEYS[5]) == 1
    or redis.call('EXISTS', KEYS[6]) == 1 then return {'guest', 0, 0, {}} end
if redis.call('SISMEMBER', KEYS[4], ARGV[2]) == 1
    and redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then return {'guest', 0, 0, {}} end
local now = tonumber(redis.call('TIME')[1])
local length = redis.call('XLEN', KEYS[2])
local stopped, moved, old, twins, sources = '', 0, 0, {}, {}

for place = 5, #ARGV, 4 do
  local id, deadline, twin = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local bytes = tonumber(ARGV[place + 3])
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry then
    if length >= tonumber(ARGV[3]) then
      stopped = 'full'
      break
    end
    -- A second more: in the new queue the entry has to arrive before its deadline.
    if deadline > 0 and deadline <= now + 1 then
      old = old + 1
    else
      redis.call('XADD', KEYS[2], '*', unpack(entry[2]))
      redis.call('XDEL', KEYS[1], id)
      moved, length = moved + 1, length + 1
      if not sources[twin] then
        twins[#twins + 1], sources[twin] = twin, {0, 0}
      end
      sources[twin][1], sources[twin][2] = sources[twin][1] + 1, sources[twin][2] + bytes
    end
  end
end
if moved > 0 then
  redis.call('EXPIRE', KEYS[2], ARGV[4])
  redis.call('PUBLISH', 'wake:' .. ARGV[2], 'new')
end
local told = {}
for place, twin in ipairs(twins) do
  told[place] = {twin, sources[twin][1], sources[twin][2]}
end
return {stopped, moved, old, told}
