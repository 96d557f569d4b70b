-- Return {position of the newest change of a slice, when it was made in microseconds or ""}. KEYS: the meta hash, the
-- stream. ARGV: the slice's name.
local newest = redis.call('HGET', KEYS[1], ARGV[1]) or '0'
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return {newest, last[1] and last[1][2][8] or ''}
