-- The number of the key ARGV[3] is counted up by ARGV[4]. Numbers of Lua are not exact beyond 2^53, so it is
-- Redis that counts, and nothing here calculates with what it counted.
local key = ARGV[3]
-- What is so long is none, and too much to be looked at for every attempt.
if redis.call('HSTRLEN', values, key) > 64 then
    return { 'no number' }
end
local was = redis.call('HGET', values, key)
local spelled = '0'
if was then
    -- As the embedded store reads numbers: with a sign, and with zeros in front.
    local sign, digits = string.match(was, '^([+-]?)(%d+)$')
    if not digits then
        return { 'no number' }
    end
    digits = string.match(digits, '^0*(%d+)$')
    if sign == '-' and digits ~= '0' then
        spelled = sign .. digits
    else
        spelled = digits
    end
    if spelled ~= was then
        redis.call('HSET', values, key, spelled)
    end
end

local function undo()
    if was then
        redis.call('HSET', values, key, was)
    else
        redis.call('HDEL', values, key)
    end
end

local answer = redis.pcall('HINCRBY', values, key, ARGV[4])
if type(answer) == 'table' and answer.err then
    undo()
    -- It is no integer of 64 bits, or would be none.
    if string.find(answer.err, 'integer', 1, true) or string.find(answer.err, 'overflow', 1, true) then
        return { 'no number' }
    end
    return answer
end
local now = redis.call('HGET', values, key)
local refused, keys, bytes = counted(key, was, now)
if refused then
    undo()
    return refused
end
put(key, now)
note(keys, bytes)
return { 'number', now }
