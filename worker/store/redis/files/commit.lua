-- Apply all writes of a commit or none. Everything is read and judged before the first write, and what is written
-- cannot fail then: the server refuses a script that may not write (memory, replica, disk) at its first write.
-- KEYS: the meta hash, then one row for each write. ARGV: the plan, then the rows to put.
-- Returns {0} or {0, seconds, microseconds}; {1, position, row} if a condition does not hold; {2, position, size} if a
-- row would be too large; {3, version} if this is not, or no longer, the store that the caller opened.
local meta = KEYS[1]
local plan = cmsgpack.unpack(ARGV[1])
local prefix, version, at, signed, cid = plan[1], plan[2], plan[3], plan[4], plan[5]
local kept_s, asks_time, row_bytes_max, is_repeat, writes = plan[6], plan[7], plan[8], plan[9], plan[10]
local PUT, UPDATE, DELETE = 1, 2, 3
local EXPIRY_MAX = 9000000000000 -- the server refuses times that its milliseconds cannot hold

local found_version = redis.call('HGET', meta, 'version')
if found_version ~= version then return {3, found_version or ''} end

local function is_less(stored, bound)
  if type(bound) == 'string' then return type(stored) == 'string' and is_before(stored, bound) end
  if type(stored) == 'number' and type(bound) == 'number' then return stored < bound end
  local text = number_text(stored)
  return text ~= nil and is_before(number_sort(text), number_sort(number_text(bound)))
end

local holds
local function any(conditions, row)
  for _, one in ipairs(conditions) do
    if holds(one, row) then return true end
  end
  return false
end

holds = function(condition, row)
  local kind, attribute, value = condition[1], condition[2], condition[3]
  if kind == 'absent' then return row == nil or (attribute ~= false and row[attribute] == nil) end
  if kind == 'exists' then return row ~= nil and (attribute == false or row[attribute] ~= nil) end
  if kind == 'equals' then return row ~= nil and row[attribute] ~= nil and same(row[attribute], value) end
  if kind == 'less' then return row ~= nil and is_less(row[attribute], value) end
  if kind == 'expired' then
    return row ~= nil and number_text(row.ttl) ~= nil and not is_less(attribute, row.ttl)
  end
  if kind == 'any' then return any(attribute, row) end
  for _, one in ipairs(attribute) do
    if not holds(one, row) then return false end
  end
  return true
end

local function is_same_row(a, b)
  for name, value in pairs(a) do
    if not same(value, b[name]) then return false end
  end
  for name in pairs(b) do
    if a[name] == nil then return false end
  end
  return true
end

-- Count a row as `row_bytes` in limits.py does.
local function size_of(row)
  local size = 0
  for name, value in pairs(row) do
    size = size + #name
    if type(value) == 'string' then size = size + #value
    elseif type(value) == 'boolean' then size = size + 1
    elseif type(value) == 'number' or value[1] == 'n' then size = size + 21
    else size = size + value[3] end
  end
  return size
end

local function updated(write, row)
  local after = {PK = write[3], SK = write[4]}
  if row then
    for name, value in pairs(row) do after[name] = value end
  end
  for name, value in pairs(write[8]) do
    if after[name] == nil then after[name] = value end
  end
  for _, name in ipairs(write[9]) do after[name] = nil end
  for name, value in pairs(write[7]) do after[name] = value end
  return after
end

-- --- planning: reads and refuses, writes nothing --------------------------------------------------------------------

local steps = {}
for at_write, write in ipairs(writes) do
  local body = redis.call('GET', KEYS[at_write + 1])
  local row = body and cmsgpack.unpack(body) or nil
  if is_repeat and at_write == signed and row and row.cid == cid then
    redis.call('HINCRBY', meta, 'repeats', 1) -- a write, so that a WAIT after it also covers the earlier one
    return {0}
  end
  local condition = write[5]
  if condition and not holds(condition, row) then return {1, at_write - 1, body} end
  local kind = write[1]
  local step = {write = write, key = KEYS[at_write + 1], before = row}
  if kind == PUT then
    step.body = ARGV[write[7]]
    step.after = cmsgpack.unpack(step.body)
  elseif kind == UPDATE then
    step.after = updated(write, row)
    step.body = cmsgpack.pack(step.after)
    if #step.body > row_bytes_max / 16 then
      local size = size_of(step.after)
      if size > row_bytes_max then return {2, at_write - 1, size} end
    end
  elseif kind == DELETE then
    if row then step.is_removed = true end
  end
  local is_change = step.is_removed or (step.after and not (row and is_same_row(step.after, row)))
  if is_change then steps[#steps + 1] = step end
end

-- --- applying ---------------------------------------------------------------------------------------------------------

local function write_entries(old, new)
  for _, entry in ipairs(old) do
    redis.call('ZREM', prefix .. ':i:' .. entry[1] .. ':' .. entry[2], entry[3])
  end
  for _, entry in ipairs(new) do
    redis.call('ZADD', prefix .. ':i:' .. entry[1] .. ':' .. entry[2], 0, entry[3])
  end
end

local function is_same_list(a, b)
  if #a ~= #b then return false end
  for at_entry, entry in ipairs(a) do
    local other = b[at_entry]
    if entry[1] ~= other[1] or entry[2] ~= other[2] or entry[3] ~= other[3] then return false end
  end
  return true
end

local expiries = prefix .. ':ttl'
local changed = {}
for _, step in ipairs(steps) do
  local write, before, after = step.write, step.before, step.after
  local tbl, pk, sk, slice = write[2], write[3], write[4], write[6]
  local old = before and entries_of(tbl, before) or {}
  local new = after and entries_of(tbl, after) or {}
  local old_expiry, new_expiry = before and expiry_of(before), after and expiry_of(after)
  local is_moved = not is_same_list(old, new)
  if after then
    redis.call('SET', step.key, step.body)
    if not before then redis.call('ZADD', prefix .. ':p:' .. tbl .. ':' .. pk, 0, sk) end
    if new_expiry and kept_s >= 0 then
      redis.call('EXPIREAT', step.key, text_of(math.max(1, math.min(new_expiry + kept_s, EXPIRY_MAX))))
    end
  else
    redis.call('DEL', step.key)
    redis.call('ZREM', prefix .. ':p:' .. tbl .. ':' .. pk, sk)
  end
  if is_moved then write_entries(old, new) end
  if old_expiry ~= new_expiry or is_moved then
    if old_expiry then redis.call('ZREM', expiries, expiry_member(tbl, pk, sk, old)) end
    if new_expiry then redis.call('ZADD', expiries, text_of(new_expiry), expiry_member(tbl, pk, sk, new)) end
  end
  local kind = (not after) and 'REMOVE' or (before and 'MODIFY' or 'INSERT')
  local feed = tbl .. '.' .. slice
  append_change(prefix, meta, feed, {kind = kind, pk = pk, sk = sk, at = at, body = after and step.body})
  changed[#changed + 1] = feed
end
-- Readers also poll: a user who may not publish only makes them slower.
if #changed > 0 then redis.pcall('PUBLISH', prefix .. ':changed', table.concat(changed, ' ')) end
if asks_time then
  local now = redis.call('TIME')
  return {0, now[1], now[2]}
end
return {0}
