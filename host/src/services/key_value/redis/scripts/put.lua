-- Keys get values, or go: ARGV[3] pairs of those, then the keys that go. No key is there twice.
local keys, bytes = had_keys, had_bytes
local first, last = 4, 3 + 2 * tonumber(ARGV[3])
for at = first, last, 2 do
    local key, value = ARGV[at], ARGV[at + 1]
    if redis.call('HEXISTS', values, key) == 1 then
        bytes = bytes - redis.call('HSTRLEN', values, key) + #value
    else
        keys, bytes = keys + 1, bytes + #key + #value
    end
end
for at = last + 1, #ARGV do
    local key = ARGV[at]
    if redis.call('HEXISTS', values, key) == 1 then
        keys, bytes = keys - 1, bytes - #key - redis.call('HSTRLEN', values, key)
    end
end
local refused = refusal(keys, bytes)
if refused then
    return refused
end
for at = first, last, 2 do
    put(ARGV[at], ARGV[at + 1])
end
for at = last + 1, #ARGV do
    redis.call('ZREM', names, ARGV[at])
    redis.call('HDEL', values, ARGV[at])
end
note(keys, bytes)
return { 'done' }
