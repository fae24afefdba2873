-- name: heads
-- Returns the envelopes of a queue without their payloads, which do not leave Redis. Reads only,
-- one entry at a time, so that few of them are in memory at once.
-- KEYS: stream. ARGV: first id or "(id", last id, count, maximum bytes to examine, maximum bytes of
-- a header.
-- Returns for each entry: id, bytes of the envelope, bytes of its payload, the envelope without it,
-- and its fault: "" or a word.
local function varint(text, at)
  local value, factor = 0, 1
  for place = at, at + 9 do
    local byte = string.byte(text, place)
    if not byte then return nil end
    value = value + (byte % 128) * factor
    if byte < 128 then return value, place + 1 end
    factor = factor * 128
  end
end
local function behind(text, wire, at)
  if wire == 0 then
    local _, place = varint(text, at)
    return place
  elseif wire == 1 then return at + 8
  elseif wire == 5 then return at + 4
  elseif wire == 2 then
    local size, place = varint(text, at)
    return size and place + size
  end
end
local function without_payload(text)
  local kept, from, at, cut = {}, 1, 1, 0
  while at <= #text do
    local tag, place = varint(text, at)
    local following = tag and behind(text, tag % 8, place)
    if not following or following > #text + 1 then return nil end
    local field = math.floor(tag / 8)
    if field == 13 or field == 14 then
      kept[#kept + 1] = string.sub(text, from, at - 1)
      from = following
      cut = cut + following - place
    end
    at = following
  end
  kept[#kept + 1] = string.sub(text, from)
  return table.concat(kept), cut
end
local found, start, seen = {}, ARGV[1], 0
for _ = 1, tonumber(ARGV[3]) do
  local entry = redis.call('XRANGE', KEYS[1], start, ARGV[2], 'COUNT', 1)[1]
  if not entry or seen >= tonumber(ARGV[4]) then break end
  start = '(' .. entry[1]
  local envelope
  for place = 1, #entry[2], 2 do
    if entry[2][place] == '_' and not envelope then envelope = entry[2][place + 1] end
  end
  local head, cut, wrong = '', 0, ''
  if not envelope then wrong = 'no_envelope' else
    seen = seen + #envelope
    head, cut = without_payload(envelope)
    if not head then head, cut, wrong = '', 0, 'unparsable'
    elseif #head > tonumber(ARGV[5]) then head, wrong = '', 'too_large' end
  end
  for _, value in ipairs({entry[1], envelope and #envelope or 0, cut, head, wrong}) do
    found[#found + 1] = value
  end
end
return found
