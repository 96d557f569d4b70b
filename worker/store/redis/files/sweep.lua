-- Delete rows that expired long ago, oldest first; return how many. The feed records each removal.
-- KEYS: the meta hash, the expiries. ARGV: prefix, expired up to (seconds), most rows, time of the changes, slices.
local prefix, horizon, limit, at, slices = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', horizon, 'LIMIT', 0, limit)
local changed = {}

-- The same slice as `slice_of` in keys.py: the first four digits of the SHA-1 of the partition.
local function slice_of(pk)
  return tonumber(redis.sha1hex(pk):sub(1, 4), 16) % slices
end

for _, member in ipairs(found) do
  local tbl, pk, sk, entries = unpack(cmsgpack.unpack(member))
  local key = row_key(prefix, tbl, pk, sk)
  local body = redis.call('GET', key)
  local row = body and cmsgpack.unpack(body)
  redis.call('ZREM', KEYS[2], member)
  local is_newer = false
  if row then
    local expiry = expiry_of(row)
    is_newer = not expiry or expiry_member(tbl, pk, sk, entries_of(tbl, row)) ~= member or expiry > tonumber(horizon)
  end
  local kept = {}
  if is_newer then -- the server had deleted the row by itself, and it was made again
    for _, entry in ipairs(entries_of(tbl, row)) do kept[entry[1] .. ':' .. entry[2] .. '\0' .. entry[3]] = true end
  end
  for _, entry in ipairs(entries) do
    if not kept[entry[1] .. ':' .. entry[2] .. '\0' .. entry[3]] then
      redis.call('ZREM', prefix .. ':i:' .. entry[1] .. ':' .. entry[2], entry[3])
    end
  end
  if not is_newer then
    redis.call('DEL', key)
    redis.call('ZREM', prefix .. ':p:' .. tbl .. ':' .. pk, sk)
    local feed = tbl .. '.' .. slice_of(pk)
    append_change(prefix, KEYS[1], feed, {kind = 'REMOVE', pk = pk, sk = sk, at = at})
    changed[#changed + 1] = feed
  end
end
if #changed > 0 then redis.pcall('PUBLISH', prefix .. ':changed', table.concat(changed, ' ')) end
return #found
