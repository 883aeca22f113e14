-- The values of the keys from ARGV[2] on, if they take ARGV[1] bytes together.
local most, bytes = tonumber(ARGV[1]), 0
for at = 2, #ARGV do
    bytes = bytes + redis.call('HSTRLEN', KEYS[1], ARGV[at])
end
if bytes > most then
    return { 'too much' }
end
return { 'values', redis.call('HMGET', KEYS[1], unpack(ARGV, 2)) }
