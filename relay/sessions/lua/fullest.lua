-- name: fullest
-- Returns the total number of messages, then the queues that hold at least the given number: name,
-- messages and bytes of each.
-- Reads only, and one page of the sweep's SCAN at a time, so that Redis is not blocked.
-- KEYS: queues; ARGV: messages, bytes.
local found = { 0 }
for _, name in ipairs(KEYS) do
    local messages = redis.call('XLEN', name)
    found[1] = found[1] + messages
    if messages > 0 then
        local bytes = redis.call('MEMORY', 'USAGE', name, 'SAMPLES', 5) or 0
        if messages >= tonumber(ARGV[1]) or bytes >= tonumber(ARGV[2]) then
            found[#found + 1] = name
            found[#found + 1] = messages
            found[#found + 1] = bytes
        end
    end
end
return found
