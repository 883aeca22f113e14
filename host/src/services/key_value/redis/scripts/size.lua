-- How many keys a namespace has, and bytes of keys and values.
return { redis.call('HLEN', KEYS[1]), redis.call('GET', KEYS[2]) }
