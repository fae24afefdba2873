-- Records what was sent although Redis had no room for the record.
--
-- The removal comes first, and needs no room: a script that has begun to write may go on, whatever
-- `maxmemory` says. What is settled meanwhile, and has left the hash, is not put back.
--
-- KEYS: the hash of what is in hand
-- ARGV: the field of the entry, its new value, further fields and values
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
