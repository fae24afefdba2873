-- name: lease_free
-- Frees the leases whose token begins with the name of a process that has ended.
-- KEYS: leases. ARGV: prefix of the tokens of that process. Replies how many were freed.
local freed = 0
for _, key in ipairs(KEYS) do
  local token = redis.call('GET', key)
  if token and string.sub(token, 1, #ARGV[1]) == ARGV[1] then
    freed = freed + redis.call('DEL', key)
  end
end
return freed
