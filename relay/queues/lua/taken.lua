-- name: taken
-- Which messages of other relays were stored lately, as `take` remembers them.
-- KEYS: how the names of the sets begin. ARGV: seconds of a period, periods that are remembered,
-- then the mark of each message.
-- Returns 1 or 0 for each message.
local period = math.floor(redis.call('TIME')[1] / ARGV[1])
local answers = {}
for back = 0, ARGV[2] - 1 do
  local found = redis.call('SMISMEMBER', KEYS[1] .. (period - back), unpack(ARGV, 3))
  for number, each in ipairs(found) do
    if each == 1 or not answers[number] then answers[number] = each end
  end
end
return answers
