-- Takes the oldest entries of a system list and stores each in a hash under the given field.
--
-- All of it is one step: an entry is either in the list, or in the hash with the uid that its
-- messages will have. So a gateway that was killed at any moment finds the entry again and uses the
-- same uid.
--
-- KEYS: the list, the hash of the entries in hand
-- ARGV: kind of the entries (one byte, put before each), maximum number of bytes to take (the first
--       entry is always taken), a field for each entry
-- Returns the entries, in the order of the fields.
local most_bytes = tonumber(ARGV[2])
local taken = {}
local bytes = 0
-- Eight at a time: one call for each would take most of the script's time, and all at once may be
-- gigabytes.
while #taken < #ARGV - 2 and bytes < most_bytes do
  local count = math.min(8, #ARGV - 2 - #taken)
  local entries = redis.call('RPOP', KEYS[1], count)
  if not entries then
    break
  end
  local kept = {}
  local used = 0
  while used < #entries and bytes < most_bytes do
    used = used + 1
    local entry = entries[used]
    kept[#kept + 1] = ARGV[3 + #taken]
    kept[#kept + 1] = ARGV[1] .. entry
    taken[#taken + 1] = entry
    bytes = bytes + #entry
  end
  redis.call('HSET', KEYS[2], unpack(kept))
  for i = #entries, used + 1, -1 do
    redis.call('RPUSH', KEYS[1], entries[i])
  end
  if #entries < count then
    break
  end
end
return taken
