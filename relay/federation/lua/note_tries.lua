-- name: note_tries
-- Stores a failed attempt of several messages, to be shown with the waiting messages.
-- KEYS: lists of the messages' attempts. ARGV: the attempt, maximum number of attempts kept, life
-- of a list in seconds.
for _, key in ipairs(KEYS) do
  redis.call('RPUSH', key, ARGV[1])
  redis.call('LTRIM', key, -tonumber(ARGV[2]), -1)
  redis.call('EXPIRE', key, ARGV[3])
end
