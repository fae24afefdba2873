-- Keeps the list of a command until the last request in it has expired.
--
-- Never shortens the life that the list has: an earlier request may live longer than the new ones.
-- Another twin chooses the command, so the key may hold a value of another type, which stays
-- unchanged. Needs no memory.
--
-- KEYS: the list
-- ARGV: seconds until the last of the new requests has expired
if redis.call('TYPE', KEYS[1]).ok == 'list' and redis.call('TTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('EXPIRE', KEYS[1], ARGV[1])
end
