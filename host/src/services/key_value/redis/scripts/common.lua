-- What every change begins with: the keys of a namespace, what it may have, and what it has.
--
-- All that can fail is asked before anything is written: Redis does not take back what a script wrote before it
-- failed. That there is memory, and that this server takes writes at all, Redis looks at itself before a script
-- whose first line has no flag that says otherwise.
local values, names, size = KEYS[1], KEYS[2], KEYS[3]
for _, write in ipairs({
    { 'SET', size, '0' }, { 'DEL', size }, { 'ZADD', names, '0', 'k' }, { 'ZREM', names, 'k' },
    { 'HSET', values, 'k', 'v' }, { 'HDEL', values, 'k' }, { 'HINCRBY', values, 'k', '1' },
}) do
    if not redis.acl_check_cmd(unpack(write)) then
        return redis.error_reply('NOPERM this user may not do all of ' .. write[1] .. ' and what else a change needs')
    end
end
local most_keys, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local had_keys, had_bytes = redis.call('HLEN', values), 0
redis.call('ZCARD', names)
if had_keys > 0 then
    had_bytes = tonumber(redis.call('GET', size)) or 0
end

-- What makes it smaller is never refused, not even when the quota was lowered.
local function refusal(keys, bytes)
    if keys > most_keys and keys > had_keys then
        return { 'keys' }
    end
    if bytes > most_bytes and bytes > had_bytes then
        return { 'bytes' }
    end
    return nil
end

-- What there is once a key has a value in place of the one that it had: whether it is refused, keys, bytes.
local function counted(key, was, value)
    local keys, bytes = had_keys, had_bytes + #value
    if was then
        bytes = bytes - #was
    else
        keys, bytes = keys + 1, bytes + #key
    end
    return refusal(keys, bytes), keys, bytes
end

local function put(key, value)
    redis.call('ZADD', names, 0, key)
    redis.call('HSET', values, key, value)
end

-- Notes how much there is from now on.
local function note(keys, bytes)
    if keys == 0 then
        redis.call('DEL', size)
    else
        redis.call('SET', size, string.format('%.0f', math.max(bytes, 0)))
    end
end
