-- Read changes of one slice in order. KEYS: the meta hash, the stream. ARGV: the slice's name, the position after which
-- to read, when the change at that position was made (milliseconds, -1 if unknown), most changes, most bytes.
-- Returns {0, newest position, id, fields, id, fields, …}; {1, position to go on from} if changes after the position are
-- gone: they were trimmed, or the server lost them, because a replica that had not received them took over.
local feed = ARGV[1]
local after, at_ms, limit, bytes_max = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local newest = tonumber(redis.call('HGET', KEYS[1], feed) or '0')

-- Start again after what is lost: what is left is read again as a whole, by a resync. Numbers that were given out before
-- are not used again, so that checkpoints still rise.
local function lost()
  newest = math.max(newest, after)
  redis.call('HSET', KEYS[1], feed, text_of(newest))
  redis.call('XTRIM', KEYS[2], 'MINID', text_of(newest + 1) .. '-0')
  return {1, text_of(newest)}
end

if after > newest then return lost() end
local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)
local trimmed = newest
if oldest[1] then trimmed = tonumber(oldest[1][1]:match('^%d+')) - 1 end
if after < trimmed then return {1, text_of(trimmed)} end
if after > trimmed and at_ms >= 0 then
  local id = text_of(after) .. '-0'
  local there = redis.call('XRANGE', KEYS[2], id, id)
  -- Another change has this number now, or none: what was read is lost.
  if not there[1] or math.floor(tonumber(there[1][2][8]) / 1000) > at_ms then return lost() end
end
local answer, size, from = {0, text_of(newest)}, 0, after + 1
while #answer / 2 - 1 < limit and size < bytes_max do
  local step = math.min(25, limit - (#answer / 2 - 1))
  local found = redis.call('XRANGE', KEYS[2], text_of(from) .. '-0', '+', 'COUNT', text_of(step))
  for _, entry in ipairs(found) do
    answer[#answer + 1] = entry[1]
    answer[#answer + 1] = entry[2]
    size = size + #entry[2][10]
    from = tonumber(entry[1]:match('^%d+')) + 1
  end
  if #found < step then break end
end
return answer
