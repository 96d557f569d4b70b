-- Shared by all scripts. Rows are MessagePack maps: texts, booleans and small whole numbers as they are; other numbers
-- as {"n", text}; all else as {"j", canonical JSON, size}. Values are canonical, so equal values have equal parts.
-- Generated above this line: INDEXES, by table, each {name, partition attribute, sort attribute, sorts by number}.

local function row_key(prefix, tbl, pk, sk)
  return prefix .. ':r:' .. tbl .. ':' .. #pk .. ':' .. pk .. ':' .. sk
end

-- Escape a part of a composite member, so that members sort by their first part, then by the second.
local function escaped(text)
  if text:find('%z') then return (text:gsub('%z', '\0\255')) end
  return text
end

-- Encode the text of a number as bytes that sort like numbers; `number_sort` in index_entries.py does the same.
local function number_sort(text)
  local sign, rest = text:match('^(%-?)(.*)$')
  local mantissa, exponent = rest:match('^([%d%.]+)[eE]([%+%-]?%d+)$')
  if not mantissa then mantissa, exponent = rest, '0' end
  local whole, fraction = mantissa:match('^(%d*)%.?(%d*)$')
  local digits = whole .. fraction
  local zeros = #digits:match('^0*')
  local adjusted = #whole - 1 + tonumber(exponent) - zeros
  digits = digits:sub(zeros + 1):gsub('0+$', '')
  if digits == '' then return '\128' end
  local biased = adjusted + 32768
  local size = string.char(math.floor(biased / 256), biased % 256) .. digits
  if sign == '' then return '\192' .. size end
  local inverted = {}
  for at = 1, #size do inverted[at] = string.char(255 - size:byte(at)) end
  return '\64' .. table.concat(inverted) .. '\255'
end

-- Return the exact text of a stored number; nil if the value is no number.
local function number_text(value)
  if type(value) == 'number' then return string.format('%.0f', value) end
  if type(value) == 'table' and value[1] == 'n' then return value[2] end
  return nil
end

-- Compare bytes. Lua's own `<` follows the locale of the server.
local function is_before(a, b)
  for at = 1, math.min(#a, #b) do
    local x, y = a:byte(at), b:byte(at)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function same(a, b)
  if type(a) == 'table' and type(b) == 'table' then return a[1] == b[1] and a[2] == b[2] end
  return a == b
end

-- Return the index entries of a row: {index name, partition, member}.
local function entries_of(tbl, row)
  local found = {}
  for _, index in ipairs(INDEXES[tbl]) do
    local part, sort = row[index[2]], row[index[3]]
    if part ~= nil and sort ~= nil then
      local ordered = index[4] and number_sort(number_text(sort)) or sort
      local member = escaped(ordered) .. '\0\1' .. escaped(row.PK) .. '\0\1' .. row.SK
      found[#found + 1] = {index[1], part, member}
    end
  end
  return found
end

-- Return when a row expires, in seconds, rounded up; nil if it never does.
local function expiry_of(row)
  local text = number_text(row.ttl)
  if not text then return nil end
  return math.ceil(tonumber(text))
end

local function expiry_member(tbl, pk, sk, entries)
  return cmsgpack.pack({tbl, pk, sk, entries})
end

-- Append a change to the stream of its slice. Numbers have no gaps, so a reader can tell that changes are missing.
local function append_change(prefix, meta, feed, change)
  local number = string.format('%.0f', redis.call('HINCRBY', meta, feed, 1))
  redis.call('XADD', prefix .. ':f:' .. feed, number .. '-0',
    'k', change.kind, 'p', change.pk, 's', change.sk, 'a', change.at, 'b', change.body or '')
end

local function text_of(number)
  return string.format('%.0f', number)
end
