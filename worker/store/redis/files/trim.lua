-- Delete changes of one slice that every reader has passed, that are too old, or too many; return how many. KEYS: the
-- stream. ARGV: the lowest checkpoint, changes made up to then are too old (microseconds), most changes, most deleted.
local passed, old_us, changes_max, step = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
if not oldest[1] then return 0 end
local first = tonumber(oldest[1][1]:match('^%d+'))
local count = redis.call('XLEN', KEYS[1])
local last = first + math.min(step, count) - 1
local cut = math.max(passed, first + count - 1 - changes_max)
if cut < last then
  -- Numbers have no gaps and times rise with them, except for clocks that differ: search for the newest old change.
  local low, high = math.max(first - 1, cut), last
  while low < high do
    local middle = math.ceil((low + high) / 2)
    local id = text_of(middle) .. '-0'
    local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
    if entry and tonumber(entry[2][8]) > old_us then high = middle - 1 else low = middle end
  end
  cut = low
end
cut = math.min(cut, last)
if cut < first then return 0 end
return redis.call('XTRIM', KEYS[1], 'MINID', text_of(cut + 1) .. '-0')
