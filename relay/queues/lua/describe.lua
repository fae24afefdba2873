-- name: describe
-- Describes queues by their first and last entries only. Reads only.
-- KEYS: relay:sessions, then streams. ARGV: the session key of each stream.
-- Returns for each stream: messages, bytes of memory, first id, last id, 1 if its session is
-- connected; 0 messages if the stream is empty or the key is not a stream.
local found = {}
for place = 2, #KEYS do
  local name, length, bytes, first, last, connected = KEYS[place], 0, 0, '', '', 0
  if redis.call('TYPE', name).ok == 'stream' then
    local entry = redis.call('XRANGE', name, '-', '+', 'COUNT', 1)[1]
    if entry then
      length, first = redis.call('XLEN', name), entry[1]
      last = redis.call('XREVRANGE', name, '+', '-', 'COUNT', 1)[1][1]
      bytes = redis.call('MEMORY', 'USAGE', name, 'SAMPLES', 5) or 0
      connected = redis.call('HEXISTS', KEYS[1], ARGV[place - 1])
    end
  end
  for _, value in ipairs({length, bytes, first, last, connected}) do
    found[#found + 1] = value
  end
end
return found
