-- name: take
-- Stores messages from partner relays, each in its stream, unless it was stored lately.
-- Atomic, so of two workers that take the same message at the same time one stores it. The marks of
-- stored messages are in one set for each period of Redis' own clock; a message is marked only once
-- it is in its stream.
-- KEYS: prefix of the names of the sets, then the stream of each message. ARGV: seconds of a
-- period, number of periods kept, then mark and envelope of each message; with an empty mark the
-- message is always stored, and not marked.
-- Returns for each message the id of its entry, nil if it was stored before, or an error.
local period = math.floor(redis.call('TIME')[1] / ARGV[1])
local marks, known, answers, stored = {}, {}, {}, {}
for place = 3, #ARGV, 2 do marks[#marks + 1] = ARGV[place] end
for back = 0, ARGV[2] - 1 do
  for number, found in ipairs(redis.call('SMISMEMBER', KEYS[1] .. (period - back), unpack(marks))) do
    if found == 1 then known[number] = true end
  end
end
for number, mark in ipairs(marks) do
  answers[number] = false
  if not known[number] then
    local id = redis.pcall('XADD', KEYS[number + 1], '*', '_', ARGV[2 + 2 * number])
    answers[number] = id
    if type(id) == 'string' and mark ~= '' then stored[#stored + 1] = mark end
  end
end
if #stored > 0 then
  redis.call('SADD', KEYS[1] .. period, unpack(stored))
  redis.call('EXPIRE', KEYS[1] .. period, ARGV[1] * ARGV[2])
end
return answers
