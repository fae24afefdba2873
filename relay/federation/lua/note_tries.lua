-- name: note_tries
-- Keeps a failed try of several messages, for those who look at what waits.
-- KEYS: lists of the messages' tries. ARGV: the try, most tries kept, life of a list in seconds.
for _, key in ipairs(KEYS) do
  redis.call('RPUSH', key, ARGV[1])
  redis.call('LTRIM', key, -tonumber(ARGV[2]), -1)
  redis.call('EXPIRE', key, ARGV[3])
end
