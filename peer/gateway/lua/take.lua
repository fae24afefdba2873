-- Takes the oldest entries of a system list, and keeps each under the field it was given.
--
-- One step for all of it: an entry is either in the list, or in the hash with the uid its messages
-- will have, so that a gateway killed at any moment finds it again and uses the same uid.
--
-- KEYS: the list, the hash of what is in hand
-- ARGV: kind of the entries (one byte, put before each), bytes to take at most (one entry always
--       passes), a field for each entry
-- Returns the entries, in the order of the fields.
local taken = {}
local bytes = 0
for i = 3, #ARGV do
  local entry = redis.call('RPOP', KEYS[1])
  if not entry then
    break
  end
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[1] .. entry)
  taken[#taken + 1] = entry
  bytes = bytes + #entry
  if bytes >= tonumber(ARGV[2]) then
    break
  end
end
return taken
