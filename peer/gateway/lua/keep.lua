-- Lets the list of a command live until the last request in it has expired.
--
-- Never for a shorter time than it has: somebody's request may live longer than this one. Another
-- twin chooses the command, so the key may be something else, which is left alone. Needs no room.
--
-- KEYS: the list
-- ARGV: seconds until the last of the new requests has expired
if redis.call('TYPE', KEYS[1]).ok == 'list' and redis.call('TTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('EXPIRE', KEYS[1], ARGV[1])
end
