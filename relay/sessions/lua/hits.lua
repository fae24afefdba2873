-- name: hits
-- Adds counts to a set that keeps the heaviest names ("space-saving"): a new name in a full set
-- replaces the lightest one and continues its count, so a name that becomes heavy enters the set
-- whenever it begins. Atomic beside other workers that add to the same minute.
-- KEYS: sorted set. ARGV: maximum number of names, life in s, then name and count of each.
for place = 3, #ARGV, 2 do
  local name, count = ARGV[place], tonumber(ARGV[place + 1])
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1])
      and not redis.call('ZSCORE', KEYS[1], name) then
    count = count + redis.call('ZPOPMIN', KEYS[1])[2]
  end
  redis.call('ZINCRBY', KEYS[1], count, name)
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
