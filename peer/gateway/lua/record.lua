-- Records entries that were sent while Redis had no memory for the record.
--
-- The removal comes first and needs no memory: a script that has begun to write may continue,
-- whatever `maxmemory` says. An entry that was settled meanwhile has left the hash and is not put
-- back.
--
-- KEYS: the hash of the entries in hand
-- ARGV: the field of the entry, its new value, further fields and values
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
