-- Read one page of a partition, of a table or of an index. KEYS: the sorted set. ARGV: prefix, table, partition, lower
-- bound, upper bound, "1" for descending order, most rows, most bytes, "1" for an index.
-- Returns {is there more, member, row, member, row, …}; a row that has expired since is false.
local prefix, tbl, pk = ARGV[1], ARGV[2], ARGV[3]
local low, high, is_reverse = ARGV[4], ARGV[5], ARGV[6] == '1'
local rows_max, bytes_max, is_index = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'

local members
if is_reverse then members = redis.call('ZREVRANGEBYLEX', KEYS[1], high, low, 'LIMIT', 0, rows_max + 1)
else members = redis.call('ZRANGEBYLEX', KEYS[1], low, high, 'LIMIT', 0, rows_max + 1) end

local function unescaped(text)
  return (text:gsub('%z\255', '\0'))
end

local function key_of(member)
  if not is_index then return row_key(prefix, tbl, pk, member) end
  local from = member:find('\0\1', 1, true) -- `plain`: a pattern ends at a zero byte
  local upto = member:find('\0\1', from + 2, true)
  return row_key(prefix, tbl, unescaped(member:sub(from + 2, upto - 1)), member:sub(upto + 2))
end

local STEP = 25
local page, size, last = {0}, 0, math.min(#members, rows_max)
local at = 1
while at <= last and size <= bytes_max do
  local keys = {}
  for each = at, math.min(at + STEP - 1, last) do keys[#keys + 1] = key_of(members[each]) end
  for offset, body in ipairs(redis.call('MGET', unpack(keys))) do
    if size <= bytes_max then
      page[#page + 1] = members[at + offset - 1]
      page[#page + 1] = body
      size = size + (body and #body or 0)
    end
  end
  at = at + STEP
end
if (#page - 1) / 2 < #members then page[1] = 1 end
return page
