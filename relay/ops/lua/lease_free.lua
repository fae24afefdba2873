-- name: lease_free
-- Frees leases whose token begins with the name of a process that is no more.
-- KEYS: leases. ARGV: what the tokens of that process begin with. Replies how many there were.
local freed = 0
for _, key in ipairs(KEYS) do
  local token = redis.call('GET', key)
  if token and string.sub(token, 1, #ARGV[1]) == ARGV[1] then
    freed = freed + redis.call('DEL', key)
  end
end
return freed
