-- The key ARGV[3] gets the value ARGV[4] if it has the one that was seen, ARGV[5]; without that, if it is not there.
local key, value, seen = ARGV[3], ARGV[4], ARGV[5] or false
local was = redis.call('HGET', values, key)
if was ~= seen then
    return { 'stale', was }
end
local refused, keys, bytes = counted(key, was, value)
if refused then
    return refused
end
put(key, value)
note(keys, bytes)
return { 'done' }
